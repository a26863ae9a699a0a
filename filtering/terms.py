"""Terms: the leaves of a predicate, and negated leaves."""

from __future__ import annotations

from collections.abc import Iterable

from filtering.predicate import Not, Predicate, PropertyLeaf


def without_not(node: Predicate) -> Predicate:
    """The operand of a negation; any other node itself."""
    return node.operand if isinstance(node, Not) else node


def opposite(node: Predicate) -> Predicate:
    """The predicate that is true for exactly the other messages."""
    return node.operand if isinstance(node, Not) else Not(node)


def positive_and_negative(terms: Iterable[Predicate]) -> tuple[list[PropertyLeaf], list[PropertyLeaf]]:
    """The distinct leaves that are true if all terms are, and those that are then false.

    ``terms``: leaves about one property each, and negations of such leaves.
    """
    positive: list[PropertyLeaf] = []
    negative: list[PropertyLeaf] = []
    for term in dict.fromkeys(terms):
        leaf = without_not(term)
        assert isinstance(leaf, PropertyLeaf)
        (positive if leaf is term else negative).append(leaf)
    return positive, negative
