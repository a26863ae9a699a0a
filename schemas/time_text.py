"""Times as text."""

from __future__ import annotations

from datetime import UTC, datetime

from filtering.time_spans import AFTER_YEAR_9999


def time_text(milliseconds: int) -> str:
    """``2026-11-22 05:04:26.123``: a time in UTC, from ms since 1970. Milliseconds if the year has no four digits."""
    if not 0 <= milliseconds < AFTER_YEAR_9999:
        return f"{milliseconds} ms"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]
