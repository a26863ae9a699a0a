"""Counted nouns and lists of names in messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 message`` or ``12,345 messages``. ``several``: the words after another number than 1."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 12,345 more``: the first names, at most ``most``, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
