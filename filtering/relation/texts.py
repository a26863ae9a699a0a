"""Texts for a property of an example message, likely ones first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, isfinite, nextafter

from filtering.predicate import (
    TRUE_TEXTS,
    IsTrueText,
    NumberIs,
    NumberType,
    Predicate,
    PropertyLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
)
from filtering.predicate_value import all_hold
from filtering.terms import positive_and_negative

MISSING = None
MOST = 12
"""The number of texts of a property that are tried together with texts of other properties."""
_USUAL = ("x", "1", "2", "1.5", "0", "-1", "true", "false", "another", "1000000", "-1000000", "3000000000", "1e30")
_ODD = (" 1.5", " 1", "NaN", "Infinity", "-Infinity", "", "\u0661", "\u0662", "9223372036854775808")


def likely_texts(terms: Iterable[Predicate], plain: bool, more: Sequence[str | None] = ()) -> list[str | None]:
    """Texts, or MISSING, for which all terms about one property are true, at most MOST of them.

    ``plain``: no digits but 0 to 9. ``more``: additional texts to try.
    """
    yes, no = positive_and_negative(terms)
    found: dict[str | None, None] = {}
    for text in _tried(yes, no, more):
        if plain and text is not None and not text.isascii() and any(map(str.isdigit, text)):
            continue
        if text not in found and all_hold(text, yes, no):
            found[text] = None
            if len(found) == MOST:
                break
    return list(found)


def _tried(yes: Sequence[PropertyLeaf], no: Sequence[PropertyLeaf], more: Sequence[str | None]) -> Iterator[str | None]:
    leaves = [*yes, *no]
    for leaf in yes:
        if isinstance(leaf, TextIn):
            yield from sorted(leaf.texts)
        elif isinstance(leaf, IsTrueText):
            yield from ("true", "TRUE", *sorted(TRUE_TEXTS))
    numbers = list(dict.fromkeys(text for leaf in leaves if isinstance(leaf, NumberIs) for text in _around(leaf)))
    yield from numbers
    start = max((leaf.text for leaf in yes if isinstance(leaf, TextStartsWith)), key=len, default="")
    end = max((leaf.text for leaf in yes if isinstance(leaf, TextEndsWith)), key=len, default="")
    inner = [leaf.text for leaf in yes if isinstance(leaf, TextContains)]
    if start or end or inner:
        yield from _joined(start, [text for text in inner if text not in start and text not in end], end)
    yield from more
    yield from _USUAL
    yield MISSING
    mentioned = [text for leaf in leaves if isinstance(leaf, TextIn) for text in sorted(leaf.texts)[:MOST]]
    mentioned += [leaf.text for leaf in leaves if isinstance(leaf, (TextContains, TextStartsWith, TextEndsWith))]
    for text in mentioned:
        yield from (text, f"{text}x", f"x{text}", text.upper(), f"x{text}x")
    for text in numbers:
        yield from (f"+{text}", f"0{text}", f" {text}", f"{text}0", f"{text}.0", f"{text}d", f"{text}e0")
    yield from _ODD
    for text in numbers:
        yield text.translate(_OTHER_DIGITS)


_OTHER_DIGITS = {ord("0") + digit: chr(0x660 + digit) for digit in range(10)}


def _around(leaf: NumberIs) -> Iterator[str]:
    """The number that a leaf compares with, and numbers near it."""
    value = leaf.value
    if leaf.type is not NumberType.DOUBLE:
        for number in (value, value + 1, value - 1):
            yield str(number)
        yield f"{value}.5"
        yield f"{value}.0"
        return
    value = float(value)
    for number in (
        value,
        value + 1,
        value - 1,
        value + 0.5,
        value - 0.5,
        nextafter(value, inf),
        nextafter(value, -inf),
    ):
        if isfinite(number):
            yield str(number)
        if abs(number) < 2**63 and number == int(number):
            yield str(int(number))


def _joined(start: str, inner: Sequence[str], end: str) -> Iterator[str]:
    """Short texts with the given start, end, and parts between them."""
    middle = "".join(inner)
    for length in range(min(len(start), len(end)), -1, -1):
        if start.endswith(end[:length]):
            yield start + middle + end[length:] if not middle else start + middle + end
    yield start + middle + "1" + end
    yield start + "x".join(inner) + "x" + end
    yield start + "-".join(reversed(inner)) + end
