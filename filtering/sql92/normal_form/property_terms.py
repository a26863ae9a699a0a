"""Merges the terms of a conjunction or disjunction that are about one property.

A term is a leaf or a negated leaf. If the property is missing, every leaf is false and every negated leaf is true.
Lists of texts are intersected or united. A listed text decides every other leaf. Ranges of one number type are
narrowed or widened.
"""

from __future__ import annotations

from collections.abc import Iterable

from filtering.predicate import (
    Comparison,
    IsNumber,
    IsPresent,
    Not,
    NumberIs,
    NumberType,
    Predicate,
    PropertyLeaf,
    TextIn,
)
from filtering.predicate_value import COMPARE, all_hold, order
from filtering.terms import positive_and_negative

_UPPER = (Comparison.LESS, Comparison.LESS_OR_EQUAL)
_LOWER = (Comparison.GREATER, Comparison.GREATER_OR_EQUAL)


def all_of(terms: list[Predicate]) -> list[Predicate] | None:
    """Merges the terms of a conjunction about one property. None if they cannot all be true."""
    ranges = [term for term in terms if isinstance(term, NumberIs)]
    if len(ranges) == len(terms):
        narrowest = _narrowed_ranges(ranges)
        return None if narrowest is None else [*narrowest]
    positive, negative = positive_and_negative(terms)
    name = [*positive, *negative][0].name
    if any(isinstance(leaf, IsPresent) for leaf in negative):
        return None if positive else [Not(IsPresent(name))]
    texts = _intersection(leaf.texts for leaf in positive if isinstance(leaf, TextIn))
    if texts is not None:
        texts = frozenset(text for text in texts if all_hold(text, positive, negative))
        return [TextIn(name, texts)] if texts else None
    if not set(negative).isdisjoint(positive):
        return None
    narrowed = _narrowed(positive)
    if narrowed is None:
        return None
    excluded = [leaf.texts for leaf in negative if isinstance(leaf, TextIn)]
    others = [leaf for leaf in negative if not isinstance(leaf, TextIn)]
    if excluded:
        texts = frozenset(text for text in frozenset().union(*excluded) if all_hold(text, narrowed, others))
        others += [TextIn(name, texts)] if texts else []
    if any(_is_number(narrowed, leaf.type) for leaf in others if isinstance(leaf, IsNumber)):
        return None
    return [*narrowed, *(Not(leaf) for leaf in others if not _is_outside(leaf, narrowed))]


def any_of(terms: list[Predicate]) -> list[Predicate] | None:
    """Merges the terms of a disjunction about one property. None if one of them is always true."""
    positive, negative = positive_and_negative(terms)
    name = [*positive, *negative][0].name
    if not set(negative).isdisjoint(positive):
        return None
    if any(isinstance(leaf, IsPresent) for leaf in positive):
        return [IsPresent(name)] if not negative else None
    if len(negative) > 1:
        negative = [leaf for leaf in negative if not isinstance(leaf, IsPresent)]
    listed = frozenset().union(*(leaf.texts for leaf in positive if isinstance(leaf, TextIn)))
    excluded = _intersection(leaf.texts for leaf in negative if isinstance(leaf, TextIn))
    positive = _widened([leaf for leaf in positive if not isinstance(leaf, TextIn)])
    negative = [leaf for leaf in negative if not isinstance(leaf, TextIn)]
    if excluded is not None:
        kept = frozenset(text for text in excluded - listed if all_hold(text, negative, positive))
        if not kept:
            return None
        negative.append(TextIn(name, kept))
    elif listed:
        texts = frozenset(text for text in listed if all_hold(text, negative, positive))
        positive += [TextIn(name, texts)] if texts else []
    return [*positive, *(Not(leaf) for leaf in negative)]


def _intersection(sets: Iterable[frozenset[str]]) -> frozenset[str] | None:
    result: frozenset[str] | None = None
    for texts in sets:
        result = texts if result is None else result & texts
    return result


def _is_number(leaves: Iterable[PropertyLeaf], type_: NumberType) -> bool:
    """Whether a text for which all leaves are true parses as the type. Every int is also a long."""
    types = {leaf.type for leaf in leaves if isinstance(leaf, (IsNumber, NumberIs))}
    return type_ in types or (type_ is NumberType.LONG and NumberType.INT in types)


def _narrowed(leaves: list[PropertyLeaf]) -> list[PropertyLeaf] | None:
    """All of the leaves without those that others imply; None if a range is empty. No leaf is a TextIn."""
    ranges = _narrowed_ranges([leaf for leaf in leaves if isinstance(leaf, NumberIs)])
    if ranges is None:
        return None
    kept = [leaf for leaf in leaves if not isinstance(leaf, (IsPresent, IsNumber, NumberIs))] + ranges
    for leaf in leaves:
        if isinstance(leaf, IsNumber) and not _is_number(kept, leaf.type):
            kept.append(leaf)
    return kept or leaves[:1]


def _narrowed_ranges(leaves: list[NumberIs]) -> list[PropertyLeaf] | None:
    kept: list[PropertyLeaf] = []
    for type_ in NumberType:
        same_type = [leaf for leaf in leaves if leaf.type is type_]
        narrow = _range(same_type) if len(same_type) > 1 else same_type
        if narrow is None:
            return None
        kept += narrow
    return kept


def _range(leaves: list[NumberIs]) -> list[PropertyLeaf] | None:
    """The tightest bounds of one number type."""
    name, type_ = leaves[0].name, leaves[0].type
    for leaf in leaves:
        if leaf.comparison is Comparison.EQUAL:
            return [leaf] if all(_covers(other, leaf) for other in leaves) else None
    lower = _tightest(leaves, _LOWER, 1)
    upper = _tightest(leaves, _UPPER, -1)
    if lower and upper:
        low, high = order(type_, lower.value), order(type_, upper.value)
        if low == high and not {lower.comparison, upper.comparison} & {Comparison.LESS, Comparison.GREATER}:
            return [NumberIs(name, type_, Comparison.EQUAL, lower.value)]
        if low >= high:
            return None
    return [leaf for leaf in (lower, upper) if leaf]


def _widened(leaves: list[PropertyLeaf]) -> list[PropertyLeaf]:
    """Any of the leaves, without those that imply other leaves."""
    kept = [leaf for leaf in leaves if not isinstance(leaf, NumberIs)]
    for leaf in leaves:
        if isinstance(leaf, IsNumber) and leaf.type is NumberType.INT and IsNumber(leaf.name, NumberType.LONG) in kept:
            kept.remove(leaf)
    for type_ in NumberType:
        ranges = [leaf for leaf in leaves if isinstance(leaf, NumberIs) and leaf.type is type_]
        wide = _tightest(ranges, _LOWER, -1), _tightest(ranges, _UPPER, 1)
        if not ranges or any(isinstance(leaf, IsNumber) and leaf.type is type_ for leaf in kept):
            continue
        if wide[0] and wide[1] and _meet(wide[0], wide[1]):
            kept.append(IsNumber(ranges[0].name, type_))
            continue
        bounds = [leaf for leaf in wide if leaf]
        points = [leaf for leaf in ranges if leaf.comparison is Comparison.EQUAL]
        kept += bounds + [leaf for leaf in points if not any(_covers(bound, leaf) for bound in bounds)]
    return kept


def _meet(lower: NumberIs, upper: NumberIs) -> bool:
    """Whether ``>= lower or <= upper`` is true for all numbers. Integers have closed bounds only."""
    low, high = order(lower.type, lower.value), order(upper.type, upper.value)
    if lower.type is not NumberType.DOUBLE:
        return low <= high + 1
    both_open = lower.comparison is Comparison.GREATER and upper.comparison is Comparison.LESS
    return low < high or (low == high and not both_open)


def _tightest(leaves: list[NumberIs], sides: tuple[Comparison, Comparison], sign: int) -> NumberIs | None:
    """The bound with the greatest (sign 1) or least (sign -1) value.

    If an open and a closed bound have the same value, a conjunction takes the open one and a disjunction the closed.
    """
    bounds = [leaf for leaf in leaves if leaf.comparison in sides]
    if len(bounds) < 2:
        return bounds[0] if bounds else None
    open_first = sign if sides is _LOWER else -sign

    def tightness(leaf: NumberIs) -> tuple[int, int]:
        is_open = leaf.comparison in (Comparison.LESS, Comparison.GREATER)
        return sign * order(leaf.type, leaf.value), open_first * is_open

    return max(bounds, key=tightness)


def _covers(leaf: NumberIs, point: NumberIs) -> bool:
    return COMPARE[leaf.comparison](order(point.type, point.value), order(leaf.type, leaf.value))


def _is_outside(leaf: PropertyLeaf, narrowed: list[PropertyLeaf]) -> bool:
    """Whether ``leaf`` excludes a number that is outside the range anyway."""
    return (
        isinstance(leaf, NumberIs)
        and leaf.comparison is Comparison.EQUAL
        and any(
            isinstance(bound, NumberIs) and bound.type is leaf.type and not _covers(bound, leaf) for bound in narrowed
        )
    )
