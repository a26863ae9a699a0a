"""Text from outside that is safe to show."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """The text with control characters and line breaks, which could take over a terminal, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if _is_shown(character) else character.encode("unicode_escape").decode() for character in text
    )


def _is_shown(character: str) -> bool:
    """Whether a character is a letter, a mark, a symbol, a space of any width, or a tab."""
    category = unicodedata.category(character)
    return character == "\t" or not (category.startswith("C") or category in ("Zl", "Zp"))
