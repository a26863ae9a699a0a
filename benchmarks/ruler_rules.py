"""Predicates as rules of AWS event-ruler: one rule for each way in which a predicate can hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import inf

from filtering.predicate import (
    And,
    Comparison,
    Constant,
    IsNumber,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    Or,
    Predicate,
    TextIn,
)

Bound = tuple[float, int]  # a number, and 1 for just after it
_ALL = ((-inf, 0), (inf, 1))


@dataclass(frozen=True)
class Texts:
    """Values of a text: those named, or all but those named."""

    missing: bool
    named: frozenset[str]
    all_but: bool

    def __and__(self, other: Texts) -> Texts:
        missing = self.missing and other.missing
        if self.all_but and other.all_but:
            return Texts(missing, self.named | other.named, True)
        if self.all_but:
            return Texts(missing, other.named - self.named, False)
        return Texts(missing, self.named - other.named if other.all_but else self.named & other.named, False)

    def pattern(self) -> list[object] | None:
        """None: no message has it; an empty list: no condition."""
        patterns: list[object] = [{"exists": False}] if self.missing else []
        if not self.all_but:
            return [*patterns, *sorted(self.named)] or None
        if self.named:
            return [*patterns, {"anything-but": sorted(self.named)}]
        return [] if self.missing else [{"exists": True}]


@dataclass(frozen=True)
class Numbers:
    """Values of a number that every message has: between bounds."""

    ranges: tuple[tuple[Bound, Bound], ...]

    def __and__(self, other: Numbers) -> Numbers:
        both = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in product(self.ranges, other.ranges)]
        return Numbers(tuple(sorted({r for r in both if r[0] < r[1]})))

    def pattern(self) -> list[object] | None:
        if self.ranges == (_ALL,):
            return []
        patterns: list[object] = []
        for (low, after), (high, including) in self.ranges:
            lower = [] if low == -inf else [">" if after else ">=", low]
            upper = [] if high == inf else ["<=" if including else "<", high]
            patterns.append({"numeric": ["=", low] if low == high else [*lower, *upper]})
        return patterns or None


Values = Texts | Numbers


def rules(predicate: Predicate, numbers: frozenset[str]) -> list[str]:
    """Rules of which any holds where the predicate does; ``numbers``: the properties that every message has as one."""
    result = []
    for values in _ways(predicate, True, numbers):
        patterns = {name: value.pattern() for name, value in values.items()}
        if None not in patterns.values():
            rule = {name: pattern for name, pattern in patterns.items() if pattern}
            result.append(json.dumps(rule or {"price": [{"exists": True}]}))
    return list(dict.fromkeys(result))


def _ways(node: Predicate, wanted: bool, numbers: frozenset[str]) -> list[dict[str, Values]]:
    match node:
        case Constant(value=value):
            return [{}] if value is wanted else []
        case Not(operand=operand):
            return _ways(operand, not wanted, numbers)
        case And(terms=terms) | Or(terms=terms):
            ways = [_ways(term, wanted, numbers) for term in terms]
            if isinstance(node, Or) is wanted:
                return [way for one in ways for way in one]
            return [reduce(_both, way, {}) for way in product(*ways)]
    (name,) = node.properties
    values = _numbers(node, wanted) if name in numbers else _texts(node, wanted)
    return [{name: values}]


def _both(left: dict[str, Values], right: dict[str, Values]) -> dict[str, Values]:
    return left | {name: left[name] & value if name in left else value for name, value in right.items()}  # type: ignore[operator]


def _texts(leaf: Predicate, wanted: bool) -> Texts:
    match leaf:
        case IsPresent():
            return Texts(False, frozenset(), True) if wanted else Texts(True, frozenset(), False)
        case TextIn(texts=texts):
            return Texts(not wanted, texts, not wanted)
        case IsTrueText():
            return Texts(not wanted, frozenset(["true"]), not wanted)
    raise ValueError(f"event-ruler can not express {leaf}")


def _numbers(leaf: Predicate, wanted: bool) -> Numbers:
    match leaf:
        case IsPresent() | IsNumber():
            return Numbers((_ALL,) if wanted else ())
        case NumberIs(comparison=Comparison.EQUAL, value=value):
            inside = ((value, 0), (value, 1))
        case NumberIs(comparison=Comparison.LESS, value=value):
            inside = (_ALL[0], (value, 0))
        case NumberIs(comparison=Comparison.LESS_OR_EQUAL, value=value):
            inside = (_ALL[0], (value, 1))
        case NumberIs(comparison=Comparison.GREATER, value=value):
            inside = ((value, 1), _ALL[1])
        case NumberIs(comparison=Comparison.GREATER_OR_EQUAL, value=value):
            inside = ((value, 0), _ALL[1])
        case _:
            raise ValueError(f"event-ruler can not express {leaf}")
    outside = tuple(part for part in ((_ALL[0], inside[0]), (inside[1], _ALL[1])) if part[0] < part[1])
    return Numbers((inside,) if wanted else outside)
