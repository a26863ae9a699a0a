"""Text from outside that is safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, which could take over a terminal, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\t" else character.encode("unicode_escape").decode()
        for character in text
    )
