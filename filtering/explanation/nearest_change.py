"""Finds a small change of a message that makes a predicate true: the smallest of those that it tries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from filtering.explanation.candidates import values_for
from filtering.predicate import And, Constant, Not, Or, Predicate, PropertyLeaf, postorder
from filtering.predicate_value import holds, text_holds

Literal = tuple[Predicate, bool]
"""A leaf, and the value that it must have."""
Way = tuple[Literal, ...]
"""The leaves that must change to make a predicate true."""
WAYS = 8
"""The number of best ways that are kept for each node."""
VALUES = 6
TRIED = 400
"""The number of messages that are tried for one way."""
LEAVES = 200
"""The number of leaves of one property that are used to compare values."""


Change = Mapping[str, str | None]
"""New values of properties; None: the property is removed."""


def changed(properties: Mapping[str, str], change: Change) -> dict[str, str]:
    """The properties of the changed message."""
    return {name: value for name, value in {**properties, **change}.items() if value is not None}


def nearest_change(predicate: Predicate, properties: Mapping[str, str]) -> Change | None:
    """A change that makes the predicate true, with the fewest properties found; None if no change was found."""
    leaves: defaultdict[str, list[Predicate]] = defaultdict(list)
    for node in postorder([predicate]):
        for name in node.properties:
            leaves[name].append(node)
    for way in _ways(predicate, properties):
        names = sorted({name for leaf, _ in way for name in leaf.properties})
        choices = [_values(name, way, leaves[name], properties) for name in names]
        for values in islice(product(*choices), TRIED):
            change = {n: v for n, v in zip(names, values, strict=True) if v != properties.get(n)}
            if holds(predicate, changed(properties, change)):
                return change
    return None


def _ways(root: Predicate, properties: Mapping[str, str]) -> Sequence[Way]:
    """The best ways to make the predicate true, those with the fewest properties first."""
    known: dict[Literal, Sequence[Way]] = {}
    for node in postorder([root]):
        for wanted in (True, False):
            known[node, wanted] = _ways_of_node(node, wanted, known, properties)
    return known[root, True]


def _ways_of_node(
    node: Predicate, wanted: bool, known: Mapping[Literal, Sequence[Way]], properties: Mapping[str, str]
) -> Sequence[Way]:
    match node:
        case Constant():
            return [()] if node.value is wanted else []
        case Not():
            return known[node.operand, not wanted]
        case And() | Or():
            term_ways = [known[term, wanted] for term in node.terms]
            if isinstance(node, And) is wanted:
                return _all_of(term_ways)
            return _best(way for ways in term_ways for way in ways)
        case _:
            return [() if holds(node, properties) is wanted else ((node, wanted),)]


def _all_of(term_ways: Sequence[Sequence[Way]]) -> Sequence[Way]:
    combined: Sequence[Way] = [()]
    for ways in term_ways:
        if ways and not ways[0]:
            continue
        combined = _best(tuple(dict.fromkeys(first + second)) for first in combined for second in ways)
    return combined


def _best(ways: Iterator[Way]) -> Sequence[Way]:
    return sorted(dict.fromkeys(ways), key=_cost)[:WAYS]


def _cost(way: Way) -> tuple[int, int]:
    return len({name for leaf, _ in way for name in leaf.properties}), len(way)


def _values(name: str, way: Way, leaves: Sequence[Predicate], properties: Mapping[str, str]) -> Sequence[str | None]:
    """Values of a property that the way needs, first those that change the fewest other leaves."""
    required = [(leaf, wanted) for leaf, wanted in way if isinstance(leaf, PropertyLeaf) and leaf.name == name]
    sources = [leaf for leaf, _ in way if name in leaf.properties]
    others = [leaf for leaf in leaves[:LEAVES] if isinstance(leaf, PropertyLeaf)]
    before = [_holds(leaf, properties.get(name)) for leaf in others]
    others_changed: dict[str | None, int] = {}
    for leaf in [*sources, *leaves[:LEAVES]]:
        for value in values_for(leaf, name, properties):
            if value not in others_changed and all(_holds(term, value) is wanted for term, wanted in required):
                after = [_holds(other, value) for other in others]
                others_changed[value] = sum(new is not old for new, old in zip(after, before, strict=True))
    return sorted(others_changed, key=lambda value: (others_changed[value], value is None))[:VALUES]


def _holds(leaf: PropertyLeaf, value: str | None) -> bool:
    return value is not None and text_holds(leaf, value)
