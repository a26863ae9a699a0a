"""Writes a node of an expression as text with the same meaning."""

from __future__ import annotations

from collections.abc import Mapping

from filtering.sql92.syntax import nodes
from filtering.sql92.syntax.nodes import Node, Search
from filtering.sql92.syntax.tokens import string_literal


def expression_text(root: Node, images: Mapping[Node, str] | None = None) -> str:
    """The node as text that compiles to the same tree. ``images``: replacements for nodes."""
    parts: list[str] = []
    stack: list[Node | str] = [root]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            parts.append(piece)
        elif images is not None and piece in images:
            parts.append(images[piece])
        else:
            stack += reversed(_pieces(piece))
    return "".join(parts)


def _pieces(node: Node) -> list[Node | str]:
    match node:
        case nodes.Property():
            return [node.name]
        case nodes.TextLiteral():
            return [string_literal(node.value)]
        case nodes.NumberLiteral():
            return [node.image]
        case nodes.BooleanLiteral():
            return ["TRUE" if node.value else "FALSE"]
        case nodes.NullLiteral():
            return ["NULL"]
        case nodes.Parentheses():
            return ["(", node.operand, ")"]
        case nodes.Minus():
            return ["- " if isinstance(node.operand, nodes.Minus) else "-", node.operand]
        case nodes.IsNull():
            return [node.operand, " IS NULL"]
        case nodes.Between():
            return _between(node, "")
        case nodes.In():
            return _in(node, "")
        case nodes.TextSearch():
            return [node.operand, _search(node.search, node.negated), string_literal(node.text)]
        case nodes.Not():
            return _negated(node)
        case nodes.Binary():
            return [node.left, f" {_operator(node)} ", node.right]
    raise TypeError(f"{type(node).__name__} is not a node of an expression")


def _operator(node: nodes.Binary) -> str:
    match node:
        case nodes.Or():
            return "OR"
        case nodes.And():
            return "AND"
        case nodes.Equal():
            return "="
        case nodes.NotEqual():
            return "<>"
        case nodes.Ordering():
            return node.comparison.value
    raise TypeError(f"{type(node).__name__} has no operator")


def _search(search: Search, negated: bool) -> str:
    return f" NOT {search.value} " if negated else f" {search.value} "


def _negated(node: nodes.Not) -> list[Node | str]:
    """NOT stands before a property, a boolean or parentheses. In any other case it is part of the operator."""
    match node.operand:
        case nodes.IsNull(operand=operand):
            return [operand, " IS NOT NULL"]
        case nodes.Between() as between:
            return _between(between, "NOT ")
        case nodes.In() as listed:
            return _in(listed, "NOT ")
    return ["NOT ", node.operand]


def _between(node: nodes.Between, negation: str) -> list[Node | str]:
    return [node.operand, f" {negation}BETWEEN ", node.low, " AND ", node.high]


def _in(node: nodes.In, negation: str) -> list[Node | str]:
    return [f"{node.name} {negation}IN ({', '.join(map(string_literal, node.texts))})"]


def is_combination(node: Node) -> bool:
    """Whether the node, without parentheses around it, combines others: AND, OR, NOT before parentheses or a NOT."""
    if isinstance(node, nodes.Not):
        return isinstance(node.operand, (nodes.Parentheses, nodes.Not))
    return isinstance(node, (nodes.And, nodes.Or))
