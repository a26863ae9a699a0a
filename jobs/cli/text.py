"""Text for a terminal: names from outside, counts, times, and tables."""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from answers.rendering import one_line
from filtering.counted import listed, shortened
from schemas.errors import printable, time_text

LONGEST_NAME = 40
NARROWEST = 20
BROKERS_NAMED = 5
"""The number of brokers that a line names; others are counted."""


def short(text: str, longest: int = LONGEST_NAME) -> str:
    """The printable text; only the beginning and the end if it is longer than ``longest``."""
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest // 2 - 1]}…{text[-longest // 2 :]}"


def expression_line(expression: str | None) -> str:
    """An expression on one line; ``*`` for no expression."""
    return one_line(expression or "*")


def count(number: int) -> str:
    """``12,345``; 0 is a dash."""
    return f"{number:,}" if number else "-"


def time(milliseconds: int | None) -> str:
    """A time (ms) in UTC; None is ``now``."""
    return "now" if milliseconds is None else time_text(milliseconds)


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
    columns = len(titles)
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(columns)]
    room = shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else 0
    used = len(indent) + sum(widths[:-1]) + 2 * (columns - 1)
    lines = []
    for row in [titles, *rows]:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if last_is_text:
            cells[-1] = shortened(row[-1], max(NARROWEST, room - used)) if room else row[-1]
        lines.append((indent + "  ".join(cells)).rstrip())
    print("\n".join(lines))


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
