"""Evaluates an expression on one message part by part, in the broker's order and with its short circuits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from filtering.explanation.expression_text import expression_text, is_combination
from filtering.sql92 import CompiledExpression, EvaluationError
from filtering.sql92.reference import evaluate
from filtering.sql92.syntax.nodes import And, Node, Not, Or, inside, named_properties

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


@dataclass(frozen=True)
class Part:
    """A part of an evaluated expression: ``node`` of its tree. ``kind`` is AND, OR, NOT or leaf.

    ``values`` are the properties that a leaf reads, None if missing. ``error`` says what failed. ``decides``: the
    result of the whole expression depends on this part.
    """

    kind: str
    text: str
    result: Result
    node: Node = field(repr=False)
    parts: Sequence[Part] = ()
    values: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None
    decides: bool = False

    def leaves(self) -> Iterator[Part]:
        """The leaves, from left to right."""
        if self.kind == "leaf":
            yield self
        for part in self.parts:
            yield from part.leaves()


def trace(expression: CompiledExpression, properties: Mapping[str, str]) -> Part:
    """The evaluation of an expression on a message's properties. Its result is the broker's."""
    return _marked(_part(expression.syntax_tree, properties, 0, reached=True), decides=True)


def evaluated(expression: CompiledExpression, properties: Mapping[str, str]) -> tuple[Result, str | None]:
    """The result of the whole expression, and what failed (None: nothing)."""
    return _evaluated(expression.syntax_tree, properties)


def _evaluated(node: Node, properties: Mapping[str, str]) -> tuple[Result, str | None]:
    try:
        return _RESULTS[evaluate(node, properties)], None
    except EvaluationError as error:
        return Result.ERROR, str(error)


def _part(node: Node, properties: Mapping[str, str], depth: int, reached: bool) -> Part:
    """``reached``: the broker evaluates this part."""
    node = inside(node)
    if depth == DEEPEST or not is_combination(node):
        return _leaf(node, properties, reached)
    if isinstance(node, Not):
        operand = _part(node.operand, properties, depth + 1, reached)
        return Part("NOT", "NOT", _OPPOSITE.get(operand.result, operand.result), node, (operand,), error=operand.error)
    kind: type[And | Or] = And if isinstance(node, And) else Or
    ends_at = Result.FALSE if kind is And else Result.TRUE
    parts: list[Part] = []
    result = _OPPOSITE[ends_at] if reached else Result.NOT_EVALUATED
    for operand_node in _operands(node, kind):
        part = _part(operand_node, properties, depth + 1, reached and result not in (ends_at, Result.ERROR))
        parts.append(part)
        if part.result in (ends_at, Result.ERROR) or (
            part.result is Result.NULL and result is not Result.NOT_EVALUATED
        ):
            result = part.result
    word = "AND" if kind is And else "OR"
    return Part(word, word, result, node, parts, error=next((part.error for part in parts if part.error), None))


def _operands(node: Node, kind: type[And | Or]) -> list[Node]:
    """The operands of a chain such as a AND b AND c, which is nested to the left."""
    operands = []
    while isinstance(node, kind):
        operands.append(node.right)
        node = node.left
    return [node, *reversed(operands)]


def _leaf(node: Node, properties: Mapping[str, str], reached: bool) -> Part:
    text = expression_text(node)
    values = {name: properties.get(name) for name in named_properties(node)}
    if not reached:
        return Part("leaf", text, Result.NOT_EVALUATED, node, values=values)
    result, error = _evaluated(node, properties)
    return Part("leaf", text, result, node, values=values, error=error)


def _marked(part: Part, decides: bool) -> Part:
    """Marks the parts that decide the result."""
    parts = [_marked(inner, decides and _decides(part, inner)) for inner in part.parts]
    return replace(part, parts=parts, decides=decides)


def _decides(whole: Part, part: Part) -> bool:
    """Whether a part decides the result of the combination ``whole``."""
    if part.result is Result.NOT_EVALUATED:
        return False
    unanimous = Result.TRUE if whole.kind == "AND" else Result.FALSE
    if whole.kind == "NOT" or whole.result is unanimous:
        return True
    return part.result is whole.result
