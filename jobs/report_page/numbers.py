"""Formats the numbers and names of a report."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.counted import shortened
from jobs.cli.text import age as duration
from jobs.cli.text import short
from schemas.answers.rendering import one_line
from schemas.time_text import time_text

LONGEST_NAME = 80
LONGEST_TEXT = 300
_SIZES = ("bytes", "kB", "MB", "GB", "TB", "PB")


def whole(number: int | None) -> str:
    """``12,345``; a dash for None."""
    return "–" if number is None else f"{number:,}"


def difference(now: int, before: int | None) -> str:
    """``+12``, ``−3``, ``0``; ``new`` without an earlier number."""
    if before is None:
        return "new"
    return f"{now - before:+,}".replace("-", "−") if now != before else "0"


def share(part: int, total: int) -> str:
    """``12.3 %``. A part above 0 is never shown as 0 %, and a part below the total never as 100 %."""
    if not total:
        return "–"
    percent = 100 * part / total
    if part and percent < 0.1:
        return "< 0.1 %"
    if part < total and percent > 99.9:
        return "> 99.9 %"
    return f"{percent:.1f} %"


def age(milliseconds: int | None) -> str:
    """``2 h 14 min``, from milliseconds; a dash for None."""
    return "–" if milliseconds is None else duration(milliseconds)


def size(number: float) -> str:
    """``1.2 GB``, from bytes."""
    for unit in _SIZES:
        if number < 1000 or unit == _SIZES[-1]:
            return f"{number:,.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def name(text: str) -> str:
    """The printable name of a group, topic or file. Long names are cut in the middle."""
    return short(text, LONGEST_NAME)


def sentence(text: str) -> str:
    """One printable line, cut at LONGEST_TEXT characters."""
    return cut(text, LONGEST_TEXT)


def cut(text: str, longest: int) -> str:
    """One printable line, cut at ``longest`` characters."""
    return shortened(one_line(text[: 4 * longest]), longest)


def night_names(instants: Sequence[int]) -> list[str]:
    """The end times of nights (ms) as text: to the minute, or finer if two would be equal."""
    full = [time_text(instant) for instant in instants]
    for length in (16, 19, 23):
        names = [text[:length] for text in full]
        if len(set(names)) == len(set(full)):
            break
    return names
