"""Text for a terminal: counts, durations, and tables."""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from answers.rendering import aligned
from filtering.counted import listed
from schemas.errors import printable

BROKERS_NAMED = 5
"""The number of brokers that a line names; others are counted."""


def count(number: int) -> str:
    """``12,345``; 0 is a dash."""
    return f"{number:,}" if number else "-"


def age(milliseconds: int) -> str:
    """``2 h 14 min``: a duration in its two greatest units."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1000
    parts: list[str] = []
    for unit, width in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, seconds = divmod(seconds, width)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, indent: str = "", last_is_text: bool = False
) -> None:
    """Prints columns, the first ``left`` ones left-aligned. With ``last_is_text``, the last is cut to the terminal."""
    width = terminal_width() if last_is_text else 0
    print("\n".join(aligned([titles, *rows], left, indent, last_is_text, width)))


def terminal_width() -> int:
    """The width of the terminal that stdout is; 0 if it is none."""
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else 0


def print_table_of_brokers(titles: Sequence[str], rows: Sequence[Sequence[str]], several: bool, left: int) -> None:
    """As :func:`print_table`. The first column names the broker; it is left out if there are not ``several``."""
    if several:
        print_table(titles, rows, left)
    else:
        print_table(titles[1:], [row[1:] for row in rows], left - 1)


def print_by_line(lines: Iterable[tuple[str, str]]) -> None:
    """Prints each line once, after the brokers that it is about. ``lines``: the name of a broker, and a line."""
    brokers: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for broker, line in lines:
        brokers[line][broker] = None
    for line, names in brokers.items():
        print(printable(f"{listed(list(names), BROKERS_NAMED)}: {line}"))
