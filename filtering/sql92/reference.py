"""The reference evaluator: it evaluates an expression on one message's properties as the broker does.

It interprets the syntax tree in the broker's order, with the short circuits of RocketMQ's filter/expression
classes. It shares no comparison with the lowering, which is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from filtering.counted import shortened
from filtering.predicate import TRUE_TEXTS, Comparison, NumberType, parse
from filtering.sql92 import nodes
from filtering.sql92.nodes import Node, Number, Recursion, Search, computed
from filtering.sql92.parser import compare

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
