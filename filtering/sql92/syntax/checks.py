"""Checks for expressions that follow the grammar but that RocketMQ refuses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NoReturn, TypeGuard

from filtering.java.numbers import compare_doubles
from filtering.predicate import NumberType
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.syntax import nodes
from filtering.sql92.syntax.advice import advice_at, sentence
from filtering.sql92.syntax.nodes import BooleanNode, Node, Number, NumberLiteral, inside
from filtering.sql92.syntax.tokens import Token

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*|[0-9]+\.[0-9]+)")
_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_WITHOUT_QUOTES = "Write {} without quotes"


def number(token: Token, text: str) -> Number:
    """The value of a number literal that the broker accepts."""
    try:
        value = nodes.number(token.text)
    except ValueError:
        _refuse("An integer must be at most 9223372036854775807", text, token.start)
    if value.type is NumberType.DOUBLE:
        if value.value == 0:
            _refuse("A decimal number must not be zero: write 0", text, token.start)
        if math.isinf(value.value):
            _refuse("The number is greater than a double can be", text, token.start)
    return value


def boolean(
    node: Node,
    text: str,
    operator: Token | None = None,
    end: int | None = None,
    version: RocketMQVersion = NEWEST,
) -> None:
    """AND, OR, NOT and the expression as a whole take a boolean or a property. ``end``: where the expression ends."""
    value = inside(node)
    if isinstance(value, (BooleanNode, nodes.Property)):
        return
    subject = f"{operator.kind} takes" if operator else "An expression must be"
    advice = ""
    if end is not None:
        advice = advice_at(text, end, version)
    elif isinstance(value, nodes.Minus):
        advice = advice_at(text, value.position)
    elif operator is not None and operator.kind in ("AND", "OR"):
        advice = f"write a whole comparison on both sides of {operator.kind}"
    _refuse(
        f"{subject} a comparison, a boolean or a property, not a number, a string or a minus"
        + (f". {sentence(advice)[:-1]}" if advice else ""),
        text,
        node.position,
    )


def property_name(node: Node, text: str, operator: Token) -> str:
    """The name of the property that IN tests."""
    node = inside(node)
    if not isinstance(node, nodes.Property):
        quoted = f". {_WITHOUT_QUOTES.format(node.value)}" if is_quoted_name(node) else ""
        _refuse(f"IN tests a property, nothing else{quoted}", text, operator.start)
    return node.name


def equality(left: Node, right: Node, text: str, operator: Token) -> None:
    """No side may be NULL, and TRUE or FALSE on the left may not be compared with a literal."""
    left, right = inside(left), inside(right)
    if isinstance(left, nodes.NullLiteral) or isinstance(right, nodes.NullLiteral):
        _refuse("Nothing can be compared to NULL: write IS NULL or IS NOT NULL", text, operator.start)
    if isinstance(left, nodes.BooleanLiteral) and isinstance(right, (nodes.TextLiteral, NumberLiteral)):
        _refuse("TRUE and FALSE can't be compared to a literal on their right", text, operator.start)


def between(low: Node, high: Node, text: str, operator: Token) -> None:
    """Two number literals without a minus must be in order."""
    low, high = inside(low), inside(high)
    if isinstance(low, NumberLiteral) and isinstance(high, NumberLiteral) and compare(low.value, high.value) > 0:
        _refuse("The lower bound of BETWEEN is above its upper bound", text, operator.start)


def is_quoted_name(node: Node) -> TypeGuard[nodes.TextLiteral]:
    """Whether a text may be meant as the name of a property."""
    return isinstance(node, nodes.TextLiteral) and _NAME.fullmatch(node.value) is not None


def ordered(node: Node, text: str, operator: Token, others: Iterable[Node]) -> None:
    """Only numbers, properties and negated ones have an order. ``others``: what the node is compared with."""
    value = inside(node)
    if isinstance(value, (BooleanNode, nodes.TextLiteral)):
        text_value = value.value if isinstance(value, nodes.TextLiteral) else ""
        is_name = is_quoted_name(value) and not any(isinstance(inside(other), nodes.Property) for other in others)
        advice = f". {_WITHOUT_QUOTES.format(text_value)}" if is_name or _NUMBER.fullmatch(text_value) else ""
        problem = f"{operator.kind} compares properties and numbers, not strings, booleans or NULL{advice}"
        _refuse(problem, text, operator.start)


def compare(left: Number, right: Number) -> int:
    """ComparisonExpression.__compare of two numbers: -1, 0 or 1."""
    if NumberType.DOUBLE in (left.type, right.type):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def _refuse(problem: str, text: str, position: int) -> NoReturn:
    raise InvalidExpression(problem + ".", text, position)
