"""The smallest change of a message with which a predicate holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from filtering.explanation.candidates import values_for
from filtering.predicate import And, Constant, Not, Or, Predicate, PropertyLeaf, postorder
from filtering.predicate_value import holds, text_holds

Literal = tuple[Predicate, bool]
"""A leaf, and what it must come to."""
Way = tuple[Literal, ...]
"""Leaves that must change so that a predicate holds."""
WAYS = 8
"""Ways that are kept of each part: the best ones."""
VALUES = 6
TRIED = 400
"""Messages that are tried for one way."""
LEAVES = 200
"""Leaves of one property that are looked at when values are compared."""


@dataclass(frozen=True)
class Change:
    """Properties with other values; None: without the property."""

    values: Mapping[str, str | None]

    def applied(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The changed message's properties."""
        changed = {name: self.values.get(name, value) for name, value in {**properties, **self.values}.items()}
        return {name: value for name, value in changed.items() if value is not None}


def nearest_change(predicate: Predicate, properties: Mapping[str, str]) -> Change | None:
    """A change with which the predicate holds, of as few properties as was found; None where none was found."""
    leaves: defaultdict[str, list[Predicate]] = defaultdict(list)
    for node in postorder([predicate]):
        for name in node.properties:
            leaves[name].append(node)
    for way in _ways(predicate, properties):
        names = sorted({name for leaf, _ in way for name in leaf.properties})
        choices = [_values(name, way, leaves[name], properties) for name in names]
        for values in islice(product(*choices), TRIED):
            change = Change({n: v for n, v in zip(names, values, strict=True) if v != properties.get(n)})
            if holds(predicate, change.applied(properties)):
                return change
    return None


def _ways(root: Predicate, properties: Mapping[str, str]) -> Sequence[Way]:
    """The best ways to make the predicate hold, those with the fewest properties first."""
    known: dict[Literal, Sequence[Way]] = {}
    for node in postorder([root]):
        for wanted in (True, False):
            known[node, wanted] = _ways_of(node, wanted, known, properties)
    return known[root, True]


def _ways_of(
    node: Predicate, wanted: bool, known: Mapping[Literal, Sequence[Way]], properties: Mapping[str, str]
) -> Sequence[Way]:
    match node:
        case Constant():
            return [()] if node.value is wanted else []
        case Not():
            return known[node.operand, not wanted]
        case And() | Or():
            of_terms = [known[term, wanted] for term in node.terms]
            return _all_of(of_terms) if isinstance(node, And) is wanted else _one_of(of_terms)
        case _:
            return [() if holds(node, properties) is wanted else ((node, wanted),)]


def _all_of(of_terms: Sequence[Sequence[Way]]) -> Sequence[Way]:
    ways: Sequence[Way] = [()]
    for of_term in of_terms:
        if of_term and not of_term[0]:
            continue
        ways = _best(tuple(dict.fromkeys(one + other)) for one in ways for other in of_term)
    return ways


def _one_of(of_terms: Sequence[Sequence[Way]]) -> Sequence[Way]:
    return _best(way for of_term in of_terms for way in of_term)


def _best(ways: Iterator[Way]) -> Sequence[Way]:
    return sorted(dict.fromkeys(ways), key=_cost)[:WAYS]


def _cost(way: Way) -> tuple[int, int]:
    return len({name for leaf, _ in way for name in leaf.properties}), len(way)


def _values(name: str, way: Way, leaves: Sequence[Predicate], properties: Mapping[str, str]) -> Sequence[str | None]:
    """Values of a property that do what the way asks of it; first those that change the least besides."""
    asked = [(leaf, wanted) for leaf, wanted in way if isinstance(leaf, PropertyLeaf) and leaf.name == name]
    sources = [leaf for leaf, _ in way if name in leaf.properties]
    others = [leaf for leaf in leaves[:LEAVES] if isinstance(leaf, PropertyLeaf)]
    before = [_holds(leaf, properties.get(name)) for leaf in others]
    found: dict[str | None, int] = {}
    for leaf in [*sources, *leaves[:LEAVES]]:
        for value in values_for(leaf, name, properties):
            if value not in found and all(_holds(each, value) is wanted for each, wanted in asked):
                found[value] = sum(_holds(each, value) is not was for each, was in zip(others, before, strict=True))
    return sorted(found, key=lambda value: (found[value], value is None))[:VALUES]


def _holds(leaf: PropertyLeaf, value: str | None) -> bool:
    return value is not None and text_holds(leaf, value)
