"""Rules that decide whether all terms about one property can be true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from filtering.java.numbers import double_order
from filtering.predicate import (
    OPPOSITE,
    TRUE_TEXTS,
    Comparison,
    IsNumber,
    IsPresent,
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
from filtering.predicate_value import all_hold, order
from filtering.terms import positive_and_negative

_LIMITS = {
    NumberType.INT: (-(2**31), 2**31 - 1),
    NumberType.LONG: (-(2**63), 2**63 - 1),
    NumberType.DOUBLE: (double_order(float("-inf")), double_order(float("nan"))),
}
_FEW = 64
"""In a smaller range, each number is compared with the excluded ones."""


def can_hold(terms: Sequence[Predicate], plain: bool) -> bool:
    """False only if it is certain that no text makes all terms true, nor a missing property.

    ``terms``: leaves and negated leaves about one property. ``plain``: only texts whose digits are 0 to 9 count; then
    every integer is a decimal, too.
    """
    yes, no = positive_and_negative(terms)
    if not yes:
        return True
    if any(isinstance(leaf, IsPresent) for leaf in no) or not set(yes).isdisjoint(no):
        return False
    listed = [leaf.texts for leaf in yes if isinstance(leaf, TextIn)]
    listed += [TRUE_TEXTS for leaf in yes if isinstance(leaf, IsTrueText)]
    if listed:
        return any(all_hold(text, yes, no) for text in frozenset.intersection(*listed))
    return _numbers_can_be(yes, no, plain) and _texts_can_be(yes, no)


def _numbers_can_be(yes: Sequence[PropertyLeaf], no: Sequence[PropertyLeaf], plain: bool) -> bool:
    types = {leaf.type for leaf in yes if isinstance(leaf, (IsNumber, NumberIs))}
    if NumberType.INT in types:
        types.add(NumberType.LONG)
    if plain and NumberType.LONG in types:
        types.add(NumberType.DOUBLE)
    if any(isinstance(leaf, IsNumber) and leaf.type in types for leaf in no):
        return False
    ranges = {type_: _range(type_, yes, no) for type_ in types}
    if NumberType.INT in types:
        low, high = ranges[NumberType.INT]
        least, greatest = ranges[NumberType.LONG]
        ranges[NumberType.LONG] = max(low, least), min(high, greatest)
    if plain and NumberType.LONG in types:
        low, high = (double_order(float(bound)) for bound in ranges[NumberType.LONG])
        least, greatest = ranges[NumberType.DOUBLE]
        ranges[NumberType.DOUBLE] = max(low, least), min(high, greatest)
    return all(_has_number(type_, *bounds, no) for type_, bounds in ranges.items())


def _range(type_: NumberType, yes: Iterable[PropertyLeaf], no: Iterable[PropertyLeaf]) -> tuple[int, int]:
    """The least and greatest possible number of a type, as its sort key. The range is empty if least > greatest."""
    low, high = _LIMITS[type_]
    bounds = [(leaf.comparison, leaf.value) for leaf in yes if isinstance(leaf, NumberIs) and leaf.type is type_]
    bounds += [
        (OPPOSITE[leaf.comparison], leaf.value)
        for leaf in no
        if isinstance(leaf, NumberIs) and leaf.type is type_ and leaf.comparison is not Comparison.EQUAL
    ]
    for comparison, value in bounds:
        key = order(type_, value)
        if comparison in (Comparison.EQUAL, Comparison.GREATER_OR_EQUAL, Comparison.GREATER):
            low = max(low, key + (comparison is Comparison.GREATER))
        if comparison in (Comparison.EQUAL, Comparison.LESS_OR_EQUAL, Comparison.LESS):
            high = min(high, key - (comparison is Comparison.LESS))
    return low, high


def _has_number(type_: NumberType, low: int, high: int, no: Iterable[PropertyLeaf]) -> bool:
    if high - low >= _FEW:
        return True
    excluded = {
        order(type_, leaf.value)
        for leaf in no
        if isinstance(leaf, NumberIs) and leaf.type is type_ and leaf.comparison is Comparison.EQUAL
    }
    return any(number not in excluded for number in range(low, high + 1))


def _texts_can_be(yes: Sequence[PropertyLeaf], no: Sequence[PropertyLeaf]) -> bool:
    starts = [leaf.text for leaf in yes if isinstance(leaf, TextStartsWith)]
    ends = [leaf.text for leaf in yes if isinstance(leaf, TextEndsWith)]
    parts = [*starts, *ends, *(leaf.text for leaf in yes if isinstance(leaf, TextContains))]
    start, end = max(starts, key=len, default=""), max(ends, key=len, default="")
    if not all(start.startswith(text) for text in starts) or not all(end.endswith(text) for text in ends):
        return False
    for leaf in no:
        if isinstance(leaf, TextContains) and any(leaf.text in part for part in parts):
            return False
        if isinstance(leaf, TextStartsWith) and start.startswith(leaf.text):
            return False
        if isinstance(leaf, TextEndsWith) and end.endswith(leaf.text):
            return False
    return True
