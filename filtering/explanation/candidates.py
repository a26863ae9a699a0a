"""Values of one property that make a leaf of a predicate true or false."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping

from filtering.java.numbers import INT_MAX, LONG_MAX, parse_double
from filtering.predicate import (
    DoublesCompare,
    IsNumber,
    IsTrueText,
    NumberIs,
    NumberType,
    Predicate,
    PropertyPairLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
)

ANY_TEXTS = ("x", "y", "z")
NEAREST_TEXTS = 5
STEPS = (0.01, 1.0)
"""The distances from a number at which other numbers are tried. Prices have cents."""


def values_for(leaf: Predicate, name: str, properties: Mapping[str, str]) -> Iterator[str | None]:
    """Values of the property ``name`` that may make the leaf true or false; None: the property is missing.

    ``properties`` are the message's. No value is empty, because RocketMQ drops properties without a value.
    """
    now = properties.get(name)
    match leaf:
        case TextIn():
            yield from _nearest(now, leaf.texts)
        case TextContains() | TextEndsWith():
            yield from ((now or "") + leaf.text, leaf.text)
        case TextStartsWith():
            yield from (leaf.text + (now or ""), leaf.text)
        case IsTrueText():
            yield from ("true", "false")
        case IsNumber():
            yield "1"
        case NumberIs():
            yield from _numbers(leaf.type, leaf.value)
        case PropertyPairLeaf():
            yield from _beside(leaf, name, properties)
    yield from (now, *ANY_TEXTS, None)


def _nearest(now: str | None, texts: frozenset[str]) -> Iterator[str]:
    """The texts that are most similar to the present value, then the first ones."""
    ordered = sorted(text for text in texts if text)
    if now is not None:
        yield from difflib.get_close_matches(now, ordered, NEAREST_TEXTS, 0.0)
    yield from ordered[:NEAREST_TEXTS]


def _numbers(kind: NumberType, value: int | float) -> Iterator[str]:
    if kind is NumberType.DOUBLE:
        if math.isfinite(value):
            steps = [round(value + sign * step, 2) for step in STEPS for sign in (1, -1)]
            neighbours = [math.nextafter(value, end) for end in (math.inf, -math.inf)]
            yield from (_java(number) for number in (value, *steps, *neighbours))
        else:
            yield from ("NaN", "Infinity", "-Infinity", "0.0")
        return
    greatest = INT_MAX if kind is NumberType.INT else LONG_MAX
    for number in (int(value), int(value) + 1, int(value) - 1):
        if -greatest - 1 <= number <= greatest:
            yield str(number)


def _java(number: float) -> str:
    """The number as a text that Java parses."""
    return repr(number) if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


def _beside(leaf: PropertyPairLeaf, name: str, properties: Mapping[str, str]) -> Iterator[str]:
    """Values near that of the other property."""
    other = properties.get(leaf.right if name == leaf.left else leaf.left)
    if name in properties:
        yield properties[name]
    if other:
        yield other
    if isinstance(leaf, DoublesCompare):
        number = parse_double(other or "")
        yield from _numbers(NumberType.DOUBLE, 1.0 if number is None else number)
