"""Pieces of answers: HTML for notebooks, in which every text is escaped, and plain text for a Python prompt."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from filtering.counted import shortened
from schemas.errors import printable

SHOWN = 50
"""Rows that are shown; all are there."""
LONGEST_CELL = 200


def html_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0) -> str:
    """A table; ``more`` rows are not shown."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell_text(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f"<p>… and {more:,} more</p>" if more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def cell_text(value: Any) -> str:
    """The text of a value in a table, cut to LONGEST_CELL characters."""
    match value:
        case None:
            text = ""
        case float():
            text = f"{value:.4g}"
        case _:
            text = f"{value:,}" if type(value) is int else str(value)
    return shortened(text, LONGEST_CELL)


def html_list(title: str, lines: Sequence[str]) -> str:
    """A list under a title; nothing where there are no lines."""
    items = "".join(f"<li>{escape(cell_text(line))}</li>" for line in lines)
    return f"<p><b>{escape(title)}</b></p><ul>{items}</ul>" if lines else ""


class Shown:
    """An answer whose repr is its text. A dataclass that inherits it needs ``repr=False``."""

    def __repr__(self) -> str:
        return str(self)


def text_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0) -> str:
    """Aligned columns under their titles; ``more`` rows are not shown."""
    lines = [[*titles], *([one_line(cell_text(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([*shown, f"… and {more:,} more"] if more else shown)


def one_line(text: str) -> str:
    """The printable text on one line."""
    return printable(" ".join(text.split()))
