"""The reference evaluator: it evaluates an expression on one message's properties as the broker does.

It interprets the syntax tree in the broker's order, with the short circuits of RocketMQ's filter/expression
classes. It shares no comparison with the lowering, which is tested against it. :func:`trace` keeps what each part gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from filtering.counted import shortened
from filtering.frozen import frozen
from filtering.predicate import TRUE_TEXTS, Comparison, NumberType, parse
from filtering.sql92 import nodes
from filtering.sql92.nodes import (
    And,
    Node,
    Not,
    Number,
    Or,
    Recursion,
    Search,
    computed,
    expression_text,
    inside,
    is_combination,
    named_properties,
)
from filtering.sql92.parser import compare

if TYPE_CHECKING:
    from filtering.sql92.compiled import CompiledExpression

Value: TypeAlias = bool | str | Number | None
Properties: TypeAlias = Mapping[str, str]
_SHOWN = 60
"""Characters of a text in an error."""


class EvaluationError(Exception):
    """The broker's evaluation of the expression fails on a message. The broker does not deliver that message."""


def evaluate(root: Node, properties: Properties) -> bool | None:
    """TRUE, FALSE or NULL. Raises EvaluationError if the broker's evaluation fails."""
    return _boolean(computed(_evaluate(root, properties)))


def _evaluate(node: Node, properties: Properties) -> Recursion[Value]:
    leaf = _LEAVES.get(type(node))
    return leaf(node, properties) if leaf else (yield _RULES[type(node)](node, properties))


def _boolean(value: Value) -> bool | None:
    """The value as a boolean: the text of a property counts as FALSE (UnaryExpression.createBooleanCast)."""
    assert not isinstance(value, Number)
    return False if isinstance(value, str) else value


def _logic(node: nodes.And | nodes.Or, properties: Properties) -> Recursion[Value]:
    """TRUE decides an OR, and FALSE an AND. The right side is not evaluated if the left one decides."""
    deciding = isinstance(node, nodes.Or)
    left = _boolean((yield from _evaluate(node.left, properties)))
    if left is deciding:
        return deciding
    right = _boolean((yield from _evaluate(node.right, properties)))
    if right is deciding:
        return deciding
    return None if left is None or right is None else not deciding


def _not(node: nodes.Not, properties: Properties) -> Recursion[Value]:
    value = _boolean((yield from _evaluate(node.operand, properties)))
    return None if value is None else not value


def _minus(node: nodes.Minus, properties: Properties) -> Recursion[Value]:
    value = yield from _evaluate(node.operand, properties)
    return value.negated() if isinstance(value, Number) else None


def _parentheses(node: nodes.Parentheses, properties: Properties) -> Recursion[Value]:
    return (yield from _evaluate(node.operand, properties))


def _equal(node: nodes.Equal | nodes.NotEqual, properties: Properties) -> Recursion[Value]:
    left = yield from _evaluate(node.left, properties)
    right = yield from _evaluate(node.right, properties)
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return _values_equal(left, right)


def _not_equal(node: nodes.NotEqual, properties: Properties) -> Recursion[Value]:
    equality = yield from _equal(node, properties)
    return None if equality is None else not equality


def _is_null(node: nodes.IsNull, properties: Properties) -> Recursion[Value]:
    """RocketMQ evaluates it as an equality whose right side is NULL."""
    return (yield from _evaluate(node.operand, properties)) is None


def _values_equal(left: Value, right: Value) -> bool:
    match left, right:
        case (bool(), str()):
            raise EvaluationError("a boolean on the left is compared with text")
        case (str(), bool()):
            return (left in TRUE_TEXTS) is right
        case (Number(), str()) | (str(), Number()) | (Number(), Number()):
            return _compare(left, right) == 0
        case _:
            return type(left) is type(right) and left == right


def _ordering(node: nodes.Ordering, properties: Properties) -> Recursion[Value]:
    return (yield from _ordered(node.left, node.comparison, node.right, properties))


def _ordered(left: Node, comparison: Comparison, right: Node, properties: Properties) -> Recursion[bool | None]:
    left_value = yield from _evaluate(left, properties)
    if left_value is None:
        return None
    right_value = yield from _evaluate(right, properties)
    if right_value is None:
        return None
    sign = _compare(left_value, right_value)
    match comparison:
        case Comparison.LESS:
            return sign < 0
        case Comparison.LESS_OR_EQUAL:
            return sign <= 0
        case Comparison.GREATER:
            return sign > 0
        case Comparison.GREATER_OR_EQUAL:
            return sign >= 0
    raise AssertionError("an ordering cannot be an equality")


def _compare(left: Value, right: Value) -> int:
    """-1, 0 or 1. A number decides how text is parsed; two texts are doubles (ComparisonExpression.__compare)."""
    type_ = left.type if isinstance(left, Number) else right.type if isinstance(right, Number) else NumberType.DOUBLE
    return compare(_number(left, type_), _number(right, type_))


def _number(value: Value, type_: NumberType) -> Number:
    if isinstance(value, Number):
        return value
    assert isinstance(value, str)
    number = parse(type_, value)
    if number is None:
        raise EvaluationError(f"{shortened(value, _SHOWN)!r} is not a Java {type_.value}")
    return Number(type_, number)


def _between(node: nodes.Between, properties: Properties) -> Recursion[Value]:
    above = yield from _ordered(node.operand, Comparison.GREATER_OR_EQUAL, node.low, properties)
    if above is False:
        return False
    below = yield from _ordered(node.operand, Comparison.LESS_OR_EQUAL, node.high, properties)
    if below is False:
        return False
    return None if above is None or below is None else True


def _text_search(node: nodes.TextSearch, properties: Properties) -> Recursion[Value]:
    if not node.text:
        return False
    text = yield from _evaluate(node.operand, properties)
    if not isinstance(text, str):
        return False
    match node.search:
        case Search.CONTAINS:
            is_match = node.text in text
        case Search.STARTS_WITH:
            is_match = text.startswith(node.text)
        case Search.ENDS_WITH:
            is_match = text.endswith(node.text)
    return is_match is not node.negated


def _in(node: nodes.In, properties: Properties) -> Value:
    text = properties.get(node.name)
    return None if text is None else text in node.texts


_LEAVES: dict[type[Node], Callable[[Any, Properties], Value]] = {
    nodes.Property: lambda node, properties: properties.get(node.name),
    nodes.TextLiteral: lambda node, properties: node.value,
    nodes.NumberLiteral: lambda node, properties: node.value,
    nodes.BooleanLiteral: lambda node, properties: node.value,
    nodes.NullLiteral: lambda node, properties: None,
    nodes.In: _in,
}
_RULES: dict[type[Node], Callable[[Any, Properties], Recursion[Value]]] = {
    nodes.Or: _logic,
    nodes.And: _logic,
    nodes.Not: _not,
    nodes.Minus: _minus,
    nodes.Parentheses: _parentheses,
    nodes.Equal: _equal,
    nodes.NotEqual: _not_equal,
    nodes.IsNull: _is_null,
    nodes.Ordering: _ordering,
    nodes.Between: _between,
    nodes.TextSearch: _text_search,
}


# The same evaluation, part by part.


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
