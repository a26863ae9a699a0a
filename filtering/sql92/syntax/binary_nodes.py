"""Nodes of binary operators, with the broker's checks of their operands."""

from __future__ import annotations

from filtering.predicate import Comparison
from filtering.sql92.syntax import checks, nodes
from filtering.sql92.syntax.nodes import Node
from filtering.sql92.syntax.tokens import Token

ORDERINGS = {
    "<": Comparison.LESS,
    "<=": Comparison.LESS_OR_EQUAL,
    ">": Comparison.GREATER,
    ">=": Comparison.GREATER_OR_EQUAL,
}


def binary_node(left: Node, token: Token, right: Node, text: str) -> Node:
    """The node of the operator ``token`` in ``text``. Raises InvalidExpression if the broker refuses its operands."""
    kind, _, start = token
    if kind in ORDERINGS:
        checks.ordered(left, text, token, [right])
        checks.ordered(right, text, token, [left])
        return nodes.Ordering(start, left, right, ORDERINGS[kind])
    if kind in ("AND", "OR"):
        checks.boolean(left, text, token)
        checks.boolean(right, text, token)
        return (nodes.And if kind == "AND" else nodes.Or)(start, left, right)
    checks.equality(left, right, text, token)
    return (nodes.Equal if kind == "=" else nodes.NotEqual)(start, left, right)
