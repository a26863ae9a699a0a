"""Checks for expressions that follow the grammar but that RocketMQ refuses, and messages for unknown characters."""

from __future__ import annotations

import math
from typing import NoReturn

from filtering.java.numbers import compare_doubles
from filtering.predicate import NumberType
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.syntax import nodes
from filtering.sql92.syntax.nodes import BooleanNode, Node, Number, NumberLiteral, inside
from filtering.sql92.syntax.tokens import Token

_ADVICE = {
    "!": "write <> for not equal",
    "&": "write AND",
    "|": "write OR",
    ";": "leave it out",
    '"': "write strings in single quotes and property names without quotes",
    "`": "write property names without quotes",
    "'": "the string that starts here is never closed; a quote inside a string is written twice",
    "/": "there is no division, and a comment /* must be closed by */",
    "*": "there is no arithmetic",
    "%": "there is no arithmetic, and LIKE does not exist: use CONTAINS, STARTSWITH or ENDSWITH",
    ".": "property names have no dots",
}


def unknown(character: str) -> str:
    """The message for a character with which no token starts."""
    advice = _ADVICE.get(character)
    if advice is None and not character.isascii():
        advice = "names are ASCII letters, digits, _ and $, and only ASCII white space separates them"
    return f"The character {character!a} is not part of the language" + (f": {advice}" if advice else "")


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


def boolean(node: Node, text: str, operator: Token | None = None) -> None:
    """AND, OR, NOT and the expression as a whole take a boolean or a property."""
    if not isinstance(node, (BooleanNode, nodes.Property)) and not isinstance(
        inside(node), (BooleanNode, nodes.Property)
    ):
        subject = f"{operator.kind} takes" if operator else "An expression must be"
        _refuse(
            f"{subject} a comparison, a boolean or a property, not a number, a string or a minus", text, node.position
        )


def property_name(node: Node, text: str, operator: Token) -> str:
    """The name of the property that IN tests."""
    node = inside(node)
    if not isinstance(node, nodes.Property):
        _refuse("IN tests a property, nothing else", text, operator.start)
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


def ordered(node: Node, text: str, operator: Token) -> None:
    """Only numbers, properties and negated ones have an order."""
    if isinstance(inside(node), (BooleanNode, nodes.TextLiteral)):
        _refuse(f"{operator.kind} compares properties and numbers, not strings, booleans or NULL", text, operator.start)


def compare(left: Number, right: Number) -> int:
    """ComparisonExpression.__compare of two numbers: -1, 0 or 1."""
    if NumberType.DOUBLE in (left.type, right.type):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def _refuse(problem: str, text: str, position: int) -> NoReturn:
    raise InvalidExpression(problem + ".", text, position)
