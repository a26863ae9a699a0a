"""Times in files and options of users."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from filtering.time_spans import AFTER_YEAR_9999

SECONDS = range(10**9, 10**10)
"""Times that are between 2001 and 2286 as seconds, and in 1970 as milliseconds."""
DIGITS_OF_A_DATE = range(10**13, 10**14)
"""Dates and times written as yyyyMMddHHmmss, like RocketMQ's consumeTimestamp. As milliseconds they are after 2286."""


def instant(text: str) -> int:
    """An instant in ms since 1970, from ms or an ISO date or time (UTC by default). Raises ValueError otherwise."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return in_milliseconds(int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write milliseconds or 2026-11-21T06:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return checked(round(time.timestamp() * 1000))


def in_milliseconds(number: int) -> int:
    """The argument, a time that a user wrote. Raises ValueError if it must be seconds, or digits of a date."""
    if number in SECONDS:
        raise ValueError(f"{number} is before RocketMQ, and looks like seconds; write milliseconds, as in {number}000")
    if number in DIGITS_OF_A_DATE:
        raise ValueError(f"{number} has no time zone; write 2026-11-26T01:30:00+08:00")
    return checked(number)


def checked(milliseconds: int) -> int:
    """The argument. Raises ValueError if it is so great that it cannot be milliseconds since 1970."""
    if milliseconds >= AFTER_YEAR_9999:
        raise ValueError(f"{milliseconds} is after the year 9999; write milliseconds since 1970")
    return milliseconds
