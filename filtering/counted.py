"""Words of messages to people: counted nouns, lists of names, names that were meant, long texts, wrong types."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 message`` or ``12,345 messages``. ``several``: the words after another number than 1."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def listed(names: Sequence[str], most: int, one: str | None = None) -> str:
    """``a, b and 12,345 more``: the first names, at most ``most``, and how many more there are.

    ``one``: the word for what has such a name, as in ``a, b and 12,345 more topics``.
    """
    rest = len(names) - most
    more = f"{rest:,} more" if one is None else counted(rest, f"more {one}")
    return ", ".join(names[:most]) + (f" and {more}" if rest > 0 else "")


def shortened(text: str, longest: int) -> str:
    """The text, cut to ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def did_you_mean(name: str, known: Sequence[str], likeness: float = 0.6) -> str:
    """A hint at the known name that is most like an unknown one: ``; did you mean …?``, or an empty text.

    ``likeness``: how like it must be at least (difflib). Raises TypeError if the unknown one is no text, as from a
    Python prompt.
    """
    check_type(name, str, "a name is a text")
    same = [other for other in known if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, 1, likeness)
    return f"; did you mean {near[0]}?" if near else ""


def check_type(value: object, expected: type, what: str) -> None:
    """Raises TypeError if ``value`` has another type, as in ``an expression is a text, not bytes``.

    ``what``: the beginning of this sentence.
    """
    if not isinstance(value, expected):
        raise TypeError(f"{what}, not {type(value).__name__}")
