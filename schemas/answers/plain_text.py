"""Answers as plain text, for a Python prompt: what :mod:`schemas.answers.html` is for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.answers.html import cell_text
from schemas.printable import printable


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
