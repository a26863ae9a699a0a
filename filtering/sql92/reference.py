"""The reference: an expression on one message's properties, as the broker evaluates it.

Each node's rule is a generator that yields the operands it wants evaluated, in the broker's
order, and returns its value; so short circuits read as in RocketMQ's filter/expression classes,
and no depth of nesting exhausts the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TypeAlias

from sqlglot import exp

from filtering.java.numbers import compare_doubles, parse_double, parse_int, parse_long
from filtering.predicate import NumberType
from filtering.sql92.errors import EvaluationError
from filtering.sql92.syntax.checks import compare
from filtering.sql92.syntax.nodes import NotFound, Number, literal_value

Value: TypeAlias = bool | str | Number | None
Properties: TypeAlias = Mapping[str, str]
Evaluation: TypeAlias = Generator[exp.Expr, Value, Value]

_PARSERS: dict[NumberType, Callable[[str], int | float | None]] = {
    NumberType.INT: parse_int,
    NumberType.LONG: parse_long,
    NumberType.DOUBLE: parse_double,
}


def evaluate(root: exp.Expr, properties: Properties) -> bool | None:
    """TRUE, FALSE or NULL. Raises EvaluationError where the broker's evaluation fails."""
    stack = [_root(root, properties)]
    value: Value = None
    while stack:
        try:
            node = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value
        else:
            constant = _LEAVES.get(type(node))
            if constant is not None:
                value = constant(node, properties)
            else:
                stack.append(_RULES[type(node)](node, properties))
                value = None
    assert value is None or isinstance(value, bool)
    return value


def _root(node: exp.Expr, properties: Properties) -> Evaluation:
    return _boolean((yield node))


def _boolean(value: Value) -> bool | None:
    """A property where a boolean is wanted: UnaryExpression.createBooleanCast."""
    return False if isinstance(value, str) else value  # type: ignore[return-value]


def _or(node: exp.Or, properties: Properties) -> Evaluation:
    left = _boolean((yield node.left))
    if left is True:
        return True
    right = _boolean((yield node.right))
    if right is True:
        return True
    return None if left is None or right is None else False


def _and(node: exp.And, properties: Properties) -> Evaluation:
    left = _boolean((yield node.left))
    if left is False:
        return False
    right = _boolean((yield node.right))
    if right is False:
        return False
    return None if left is None or right is None else True


def _not(node: exp.Not, properties: Properties) -> Evaluation:
    return _negation(_boolean((yield node.this)))


def _negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def _negate(node: exp.Neg, properties: Properties) -> Evaluation:
    value = yield node.this
    return value.negated() if isinstance(value, Number) else None


def _paren(node: exp.Paren, properties: Properties) -> Evaluation:
    return (yield node.this)


def _equal(node: exp.EQ | exp.NEQ | exp.Is, properties: Properties) -> Evaluation:
    left = yield node.this
    right = yield node.expression
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return equal(left, right)


def _not_equal(node: exp.NEQ, properties: Properties) -> Evaluation:
    equality = yield from _equal(node, properties)
    assert equality is None or isinstance(equality, bool)
    return _negation(equality)


def equal(left: Value, right: Value) -> bool:
    """Whether two values that are not NULL are equal."""
    match left, right:
        case (bool(), str()):
            raise EvaluationError("a boolean on the left is compared with text")
        case (str(), bool()):
            return (left.lower() == "true") is right
        case (Number(), str()):
            return compare(left, _parsed(right, left.type)) == 0
        case (str(), Number()):
            return compare(_parsed(left, right.type), right) == 0
        case (Number(), Number()):
            return compare(left, right) == 0
        case _:
            return type(left) is type(right) and left == right


def _ordering(holds: Callable[[int], bool]) -> Callable[[exp.Expr, Properties], Evaluation]:
    def evaluation(node: exp.Expr, properties: Properties) -> Evaluation:
        return (yield from _ordered(node.this, node.expression, holds))

    return evaluation


def _ordered(left_operand: exp.Expr, right_operand: exp.Expr, holds: Callable[[int], bool]) -> Evaluation:
    left = yield left_operand
    if left is None:
        return None
    right = yield right_operand
    return None if right is None else holds(order(left, right))


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1 for two values that are not NULL: properties and numbers."""
    match left, right:
        case (str(), str()):
            return compare_doubles(_double(left), _double(right))
        case (str(), Number()):
            return compare(_parsed(left, right.type), right)
        case (Number(), str()):
            return compare(left, _parsed(right, left.type))
        case (Number(), Number()):
            return compare(left, right)
        case _:
            raise AssertionError("the grammar refuses to order anything else")


def _between(node: exp.Between, properties: Properties) -> Evaluation:
    above = yield from _ordered(node.this, node.args["low"], lambda sign: sign >= 0)
    if above is False:
        return False
    below = yield from _ordered(node.this, node.args["high"], lambda sign: sign <= 0)
    if below is False:
        return False
    return None if above is None or below is None else True


def _in(node: exp.In, properties: Properties) -> Evaluation:
    text = yield node.this
    return None if text is None else any(text == literal.this for literal in node.expressions)


SEARCHES: dict[type[exp.Expr], Callable[[str, str], bool]] = {
    exp.Contains: str.__contains__,
    exp.StartsWith: str.startswith,
    exp.EndsWith: str.endswith,
}


def _search(node: exp.Contains | exp.StartsWith | exp.EndsWith, properties: Properties) -> Evaluation:
    return (yield from _searched(node, wanted=True))


def _not_found(node: NotFound, properties: Properties) -> Evaluation:
    return (yield from _searched(node.this, wanted=False))


def _searched(node: exp.Contains | exp.StartsWith | exp.EndsWith, wanted: bool) -> Evaluation:
    searched: str = node.expression.this
    if not searched:
        return False
    text = yield node.this
    return isinstance(text, str) and SEARCHES[type(node)](text, searched) is wanted


def _parsed(text: str, type_: NumberType) -> Number:
    value = _PARSERS[type_](text)
    if value is None:
        raise EvaluationError(f"{text!r} is not a Java {type_.value}")
    return Number(type_, value)


def _double(text: str) -> float:
    return _parsed(text, NumberType.DOUBLE).value


_RULES: dict[type[exp.Expr], Callable[..., Evaluation]] = {
    exp.Or: _or,
    exp.And: _and,
    exp.Not: _not,
    exp.Neg: _negate,
    exp.Paren: _paren,
    exp.EQ: _equal,
    exp.Is: _equal,
    exp.NEQ: _not_equal,
    exp.GT: _ordering(lambda sign: sign > 0),
    exp.GTE: _ordering(lambda sign: sign >= 0),
    exp.LT: _ordering(lambda sign: sign < 0),
    exp.LTE: _ordering(lambda sign: sign <= 0),
    exp.Between: _between,
    exp.In: _in,
    exp.Contains: _search,
    exp.StartsWith: _search,
    exp.EndsWith: _search,
    NotFound: _not_found,
}
_LEAVES: dict[type[exp.Expr], Callable[..., Value]] = {
    exp.Column: lambda node, properties: properties.get(node.name),
    exp.Literal: lambda node, properties: literal_value(node),
    exp.Boolean: lambda node, properties: node.this,
    exp.Null: lambda node, properties: None,
}
