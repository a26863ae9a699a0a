"""Markup of an answer: Markdown, or plain text for a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.cli.text import print_table
from schemas.printable import printable

SPECIAL = frozenset("\\`*_[]<>#")
"""Characters that Markdown and HTML interpret everywhere. A bar ends the cell of a table, even inside code."""
_FENCES = re.compile("`+")


@dataclass(frozen=True)
class Markup:
    """Formats text from outside as Markdown, or for a terminal."""

    is_markdown: bool

    @classmethod
    def of_stdout(cls) -> Markup:
        """Plain text on a terminal, otherwise Markdown."""
        return cls(not sys.stdout.isatty())

    def text(self, text: str) -> str:
        """The text, with the characters escaped that Markdown interprets."""
        shown = printable(text)
        return "".join(f"\\{each}" if each in SPECIAL else each for each in shown) if self.is_markdown else shown

    def code(self, text: str) -> str:
        if not self.is_markdown:
            return printable(text)
        fence = "`" * (1 + max(map(len, _FENCES.findall(text)), default=0))
        pad = " " if text.startswith("`") or text.endswith("`") else ""
        return f"{fence}{pad}{printable(text)}{pad}{fence}"

    def heading(self, level: int, text: str) -> str:
        """A heading of a line of formatted text."""
        return f"{'#' * level} {text}" if self.is_markdown else text

    def strong(self, text: str) -> str:
        """A line of formatted text that introduces a list or a table."""
        return f"**{text}**" if self.is_markdown else text

    def print_table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Prints a table of formatted cells. On a terminal, the last column is cut to its width."""
        if not self.is_markdown:
            print_table(titles, rows, left=len(titles), indent="  ", last_is_text=True)
            return
        cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in [titles, *cells]) for i in range(len(titles))]
        for row in [titles, ["-" * width for width in widths], *cells]:
            print(f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=True))} |")
