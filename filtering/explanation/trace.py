"""An expression evaluated on one message, part by part, as the broker does: in order, and no further than it must."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from filtering.explanation.expression_text import expression_text, is_combination
from filtering.sql92 import CompiledExpression, EvaluationError, compile
from filtering.sql92.syntax.nodes import And, Node, Not, Or, inside, named_properties

DEEPEST = 50
"""What is nested deeper is shown as one leaf."""


class Result(Enum):
    """What an expression, or a part of one, comes to. The broker delivers where all of it is TRUE."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    ERROR = "ERROR"
    NOT_EVALUATED = "not evaluated"


_RESULTS = {True: Result.TRUE, False: Result.FALSE, None: Result.NULL}
_OPPOSITE = {Result.TRUE: Result.FALSE, Result.FALSE: Result.TRUE}


@dataclass(frozen=True)
class Part:
    """``kind`` is AND, OR, NOT or leaf. ``values`` are the properties that a leaf reads, None where one is missing.

    ``error`` is what failed, in words. ``decides``: the result of the whole would be another without this part's.
    """

    kind: str
    text: str
    result: Result
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
    """What the whole comes to, and what failed."""
    try:
        return _RESULTS[expression.evaluate(properties)], None
    except EvaluationError as error:
        return Result.ERROR, str(error)


def _part(node: Node, properties: Mapping[str, str], depth: int, reached: bool) -> Part:
    """``reached``: the broker gets there."""
    node = inside(node)
    if depth == DEEPEST or not is_combination(node):
        return _leaf(node, properties, reached)
    if isinstance(node, Not):
        operand = _part(node.operand, properties, depth + 1, reached)
        return Part("NOT", "NOT", _OPPOSITE.get(operand.result, operand.result), (operand,), error=operand.error)
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
    return Part(word, word, result, parts, error=next((part.error for part in parts if part.error), None))


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
        return Part("leaf", text, Result.NOT_EVALUATED, values=values)
    result, error = evaluated(compile(text), properties)
    return Part("leaf", text, result, values=values, error=error)


def _marked(part: Part, decides: bool) -> Part:
    """The part with those marked that made its result."""
    if not part.parts:
        return Part(part.kind, part.text, part.result, (), part.values, part.error, decides)
    parts = [_marked(each, decides and _makes(part, each)) for each in part.parts]
    return Part(part.kind, part.text, part.result, parts, part.values, part.error, decides)


def _makes(whole: Part, part: Part) -> bool:
    """Whether a part makes the result of the combination that it is in."""
    if whole.kind == "NOT" or part.result is Result.NOT_EVALUATED:
        return part.result is not Result.NOT_EVALUATED
    unanimous = Result.TRUE if whole.kind == "AND" else Result.FALSE
    return part.result is whole.result if whole.result is not unanimous else True
