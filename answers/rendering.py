"""How answers are shown: an answer is blocks of lines, which become plain text, Markdown or HTML.

A line is a text, or parts of which some are :class:`Code`. Every text may come from outside: control characters and
what Markdown or HTML interprets are escaped here, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from filtering.counted import shortened
from filtering.frozen import frozen
from schemas.errors import printable, time_text

SHOWN = 50
"""Rows that are shown; all are there."""
LONGEST_CELL = 200
LONGEST_NAME = 40
NARROWEST = 20
_MARKDOWN = frozenset("\\`*_[]<>#")
"""Characters that Markdown and HTML interpret everywhere. A bar ends the cell of a table, even inside code."""
_FENCES = re.compile("`+")


# Blocks.


class Code(str):
    """A text in a language, such as an expression."""

    __slots__ = ()


Line = str | tuple[str, ...]


@frozen
class Heading:
    text: str
    level: int


@frozen
class Paragraph:
    """``is_strong``: it introduces the next block."""

    text: str
    is_strong: bool = False


@frozen
class Items:
    lines: Sequence[Line]


@frozen
class Table:
    titles: Sequence[str]
    rows: Sequence[Sequence[Line]]


Block = Heading | Paragraph | Items | Table
Fact = tuple[str, Line | Table]
"""A label and what it says. An empty label goes on with the one before."""


def as_text(blocks: Iterable[Block], width: int = 0) -> str:
    """Plain text; of a terminal of this ``width``, the last column of a table is cut to it."""
    return "\n\n".join(_block_text(block, width) for block in blocks)


def _block_text(block: Block, width: int) -> str:
    match block:
        case Items():
            return "\n".join(f"- {_plain(line)}" for line in block.lines)
        case Table():
            rows = [block.titles, *([_plain(cell) for cell in row] for row in block.rows)]
            return "\n".join(aligned(rows, len(block.titles), "  ", last_is_text=True, width=width))
        case _:
            return _plain(block.text)


def as_markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(map(_block_markdown, blocks))


def _block_markdown(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_markdown(block.text)}"
        case Paragraph():
            return f"**{_markdown(block.text)}**" if block.is_strong else _markdown(block.text)
        case Items():
            return "\n".join(f"- {_markdown(line)}" for line in block.lines)
        case Table():
            rows = [[_markdown(cell).replace("|", "\\|") for cell in row] for row in block.rows]
            widths = [max(map(len, column)) for column in zip(block.titles, *rows, strict=True)]
            lines = [block.titles, ["-" * width for width in widths], *rows]
            return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def as_html(blocks: Iterable[Block]) -> str:
    """HTML for notebooks."""
    return "".join(map(_block_html, blocks))


def _block_html(block: Block) -> str:
    match block:
        case Items():
            return f"<ul>{''.join(f'<li>{_html(line)}</li>' for line in block.lines)}</ul>"
        case Table():
            return html_table(block.titles, block.rows)
        case Paragraph(is_strong=False):
            return f"<p>{_html(block.text)}</p>"
        case _:
            return f"<p><b>{_html(block.text)}</b></p>"


def facts_as_text(title: str, facts: Iterable[Fact]) -> str:
    """A title, and below it a line for each fact, or for each row of its table."""
    lines = [printable(title)]
    for label, content in facts:
        if isinstance(content, Table):
            texts = aligned([[_plain(cell) for cell in row] for row in content.rows], len(content.rows[0]))
        else:
            texts = [_plain(content)]
        lines += [f"  {'' if number else label:<11} {text}" for number, text in enumerate(texts)]
    return "\n".join(lines)


def facts_as_html(title: str, facts: Iterable[Fact]) -> str:
    parts = [f"<p><b>{escape(title)}</b></p>"]
    for label, content in facts:
        name = f"<b>{escape(label.capitalize())}</b>" if label else ""
        if isinstance(content, Table):
            parts.append(f"<p>{name}</p>{_block_html(content)}")
        else:
            parts.append(f"<p>{f'{name} ' if name else ''}{_html(content)}</p>")
    return "".join(parts)


def _parts(line: Line) -> tuple[str, ...]:
    return line if isinstance(line, tuple) else (line,)


def _plain(line: Line) -> str:
    return "".join(map(printable, _parts(line)))


def _markdown(line: Line) -> str:
    return "".join(map(_markdown_part, _parts(line)))


def _markdown_part(text: str) -> str:
    shown = printable(text)
    if not isinstance(text, Code):
        return "".join(f"\\{each}" if each in _MARKDOWN else each for each in shown)
    fence = "`" * (1 + max(map(len, _FENCES.findall(text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _html(line: Line) -> str:
    return "".join(f"<code>{escape(part)}</code>" if isinstance(part, Code) else escape(part) for part in _parts(line))


# Tables and lists of texts and values.


def aligned(
    rows: Sequence[Sequence[str]], left: int, indent: str = "", last_is_text: bool = False, width: int = 0
) -> list[str]:
    """Rows as lines with aligned columns, of which the first ``left`` are left-aligned.

    With ``last_is_text``, the last is, too, and it is cut to a terminal of this ``width``; 0: there is none.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(NARROWEST, width - len(indent) - sum(widths[:-1]) - 2 * (len(widths) - 1))
    lines = []
    for row in rows:
        sized = enumerate(zip(row, widths, strict=True))
        cells = [cell.ljust(size) if i < left else cell.rjust(size) for i, (cell, size) in sized]
        if last_is_text:
            cells[-1] = shortened(row[-1], room) if width else row[-1]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def text_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0) -> str:
    """Aligned columns under their titles; ``more`` rows are not shown."""
    lines = aligned([titles, *([one_line(cell_text(cell)) for cell in row] for row in rows)], len(titles))
    return "\n".join([*lines, f"… and {more:,} more"] if more else lines)


def html_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0) -> str:
    """A table; ``more`` rows are not shown. Without ``titles``, it has no head."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    head = f"<thead><tr>{head}</tr></thead>" if titles else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell_text(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f"<p>… and {more:,} more</p>" if more else ""
    return f"<table>{head}<tbody>{body}</tbody></table>{rest}"


def html_list(title: str, lines: Sequence[str]) -> str:
    """A list under a title; nothing where there are no lines."""
    items = "".join(f"<li>{escape(cell_text(line))}</li>" for line in lines)
    return f"<p><b>{escape(title)}</b></p><ul>{items}</ul>" if lines else ""


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


class Shown:
    """An answer whose repr is its text. A dataclass that inherits it needs ``repr=False``."""

    def __repr__(self) -> str:
        return str(self)


# Names, expressions and times.


def one_line(text: str) -> str:
    """The printable text on one line."""
    return printable(" ".join(text.split()))


def short(text: str, longest: int = LONGEST_NAME) -> str:
    """The printable text; only the beginning and the end if it is longer than ``longest``."""
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest // 2 - 1]}…{text[-longest // 2 :]}"


def expression_line(expression: str | None) -> str:
    """An expression on one line; ``*`` for no expression."""
    return one_line(expression or "*")


def time(milliseconds: int | None) -> str:
    """A time (ms) in UTC; None is ``now``."""
    return "now" if milliseconds is None else time_text(milliseconds)
