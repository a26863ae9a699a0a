"""Times in files and options of users."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from filtering.time_spans import AFTER_YEAR_9999


def instant(text: str) -> int:
    """An instant in ms since 1970, from ms or an ISO date or time (UTC by default). Raises ValueError otherwise."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return checked(int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write milliseconds or 2026-11-21T06:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return checked(round(time.timestamp() * 1000))


def checked(milliseconds: int) -> int:
    """The argument. Raises ValueError if it is so great that it cannot be milliseconds since 1970."""
    if milliseconds >= AFTER_YEAR_9999:
        raise ValueError(f"{milliseconds} is after the year 9999; write milliseconds since 1970")
    return milliseconds
