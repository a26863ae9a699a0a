"""Counted nouns in messages."""

from __future__ import annotations


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 message`` or ``12,345 messages``. ``several``: the words after another number than 1."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
