"""Evaluates an expression on one message part by part, in the broker's order and with its short circuits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from filtering.frozen import frozen
from filtering.sql92 import CompiledExpression, EvaluationError, nodes
from filtering.sql92.nodes import And, Node, Not, Or, Search, inside, named_properties
from filtering.sql92.reference import evaluate
from filtering.sql92.tokens import string_literal

# Writes a node of an expression as text with the same meaning.


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


DEEPEST = 50
"""The greatest depth of a trace. A deeper part is shown as one leaf."""


class Result(Enum):
    """The result of an expression or of a part of it. The broker delivers a message if the whole is TRUE."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    ERROR = "ERROR"
    NOT_EVALUATED = "not evaluated"


_RESULTS = {True: Result.TRUE, False: Result.FALSE, None: Result.NULL}
_OPPOSITE = {Result.TRUE: Result.FALSE, Result.FALSE: Result.TRUE}


@frozen
class ExpressionPart:
    """A part of an evaluated expression: ``node`` of its tree. ``kind`` is AND, OR, NOT or leaf.

    ``values`` are the properties that a leaf reads, None if missing. ``error`` says what failed. ``decides``: the
    result of the whole expression depends on this part.
    """

    kind: str
    text: str
    result: Result
    node: Node = field(repr=False)
    parts: Sequence[ExpressionPart] = ()
    values: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None
    decides: bool = False

    def leaves(self) -> Iterator[ExpressionPart]:
        """The leaves, from left to right."""
        if self.kind == "leaf":
            yield self
        for part in self.parts:
            yield from part.leaves()


def trace(expression: CompiledExpression, properties: Mapping[str, str]) -> ExpressionPart:
    """The evaluation of an expression on a message's properties. Its result is the broker's."""
    return _marked(_part(expression.syntax_tree, properties, 0, reached=True), decides=True)


def evaluated(expression: CompiledExpression, properties: Mapping[str, str]) -> tuple[Result, str | None]:
    """The result of the whole expression, and what failed (None: nothing)."""
    return node_evaluated(expression.syntax_tree, properties)


def node_evaluated(node: Node, properties: Mapping[str, str]) -> tuple[Result, str | None]:
    """As :func:`evaluated`, of a part of an expression."""
    try:
        return _RESULTS[evaluate(node, properties)], None
    except EvaluationError as error:
        return Result.ERROR, str(error)


def _part(node: Node, properties: Mapping[str, str], depth: int, reached: bool) -> ExpressionPart:
    """``reached``: the broker evaluates this part."""
    node = inside(node)
    if depth == DEEPEST or not is_combination(node):
        return _leaf(node, properties, reached)
    if isinstance(node, Not):
        operand = _part(node.operand, properties, depth + 1, reached)
        return ExpressionPart(
            "NOT", "NOT", _OPPOSITE.get(operand.result, operand.result), node, (operand,), error=operand.error
        )
    kind: type[And | Or] = And if isinstance(node, And) else Or
    ends_at = Result.FALSE if kind is And else Result.TRUE
    parts: list[ExpressionPart] = []
    result = _OPPOSITE[ends_at] if reached else Result.NOT_EVALUATED
    for operand_node in _operands(node, kind):
        part = _part(operand_node, properties, depth + 1, reached and result not in (ends_at, Result.ERROR))
        parts.append(part)
        if part.result in (ends_at, Result.ERROR) or (
            part.result is Result.NULL and result is not Result.NOT_EVALUATED
        ):
            result = part.result
    word = "AND" if kind is And else "OR"
    return ExpressionPart(
        word, word, result, node, parts, error=next((part.error for part in parts if part.error), None)
    )


def _operands(node: Node, kind: type[And | Or]) -> list[Node]:
    """The operands of a chain such as a AND b AND c, which is nested to the left."""
    operands = []
    while isinstance(node, kind):
        operands.append(node.right)
        node = node.left
    return [node, *reversed(operands)]


def _leaf(node: Node, properties: Mapping[str, str], reached: bool) -> ExpressionPart:
    text = expression_text(node)
    values = {name: properties.get(name) for name in named_properties(node)}
    if not reached:
        return ExpressionPart("leaf", text, Result.NOT_EVALUATED, node, values=values)
    result, error = node_evaluated(node, properties)
    return ExpressionPart("leaf", text, result, node, values=values, error=error)


def _marked(part: ExpressionPart, decides: bool) -> ExpressionPart:
    """Marks the parts that decide the result."""
    parts = [_marked(inner, decides and _decides(part, inner)) for inner in part.parts]
    return replace(part, parts=parts, decides=decides)


def _decides(whole: ExpressionPart, part: ExpressionPart) -> bool:
    """Whether a part decides the result of the combination ``whole``."""
    if part.result is Result.NOT_EVALUATED:
        return False
    unanimous = Result.TRUE if whole.kind == "AND" else Result.FALSE
    if whole.kind == "NOT" or whole.result is unanimous:
        return True
    return part.result is whole.result
