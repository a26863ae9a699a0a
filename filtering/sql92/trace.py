"""Evaluates an expression on one message part by part, in the broker's order and with its short circuits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from filtering.frozen import frozen
from filtering.sql92 import CompiledExpression, EvaluationError
from filtering.sql92.nodes import And, Node, Not, Or, expression_text, inside, is_combination, named_properties
from filtering.sql92.reference import evaluate

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
