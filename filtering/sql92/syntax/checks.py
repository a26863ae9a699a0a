"""What RocketMQ refuses although it is grammatical, and what it cannot read at all."""

from __future__ import annotations

import math
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from filtering.java.numbers import compare_doubles
from filtering.predicate import NumberType
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.syntax.nodes import BOOLEANS, ORDERINGS, Number, inside, is_integer, is_long, literal_value

_MEANT = {
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


def unknown(text: str, position: int) -> str:
    """Why no token starts at ``position``."""
    character = text[position]
    meant = _MEANT.get(character)
    if meant is None and not character.isascii():
        meant = "names are ASCII letters, digits, _ and $, and only ASCII white space separates them"
    return f"The character {character!a} is not part of the language" + (f": {meant}" if meant else "")


def number(token: Token, text: str) -> None:
    image = token.text
    if is_integer(image):
        if not is_long(image):
            _refuse("An integer must be at most 9223372036854775807", text, token.start)
    elif float(image) == 0:
        _refuse("A decimal number must not be zero: write 0", text, token.start)
    elif math.isinf(float(image)):
        _refuse("The number is greater than a double can be", text, token.start)


def boolean(node: exp.Expr, text: str, operator: Token | None = None) -> None:
    """AND, OR, NOT and the expression as a whole take a boolean or a property."""
    if not isinstance(inside(node), (*BOOLEANS, exp.Column)):
        what = f"{operator.text.upper()} takes" if operator else "An expression must be"
        _refuse(
            f"{what} a comparison, a boolean or a property, not a number, a string or a minus",
            text,
            node.meta["start"],
        )


def property_(node: exp.Expr, text: str, operator: Token) -> None:
    if not isinstance(inside(node), exp.Column):
        _refuse("IN tests a property, nothing else", text, operator.start)


def operands(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, text: str, operator: Token) -> None:
    if kind in (exp.And, exp.Or):
        boolean(left, text, operator)
        boolean(right, text, operator)
    elif kind in ORDERINGS:
        _ordered(left, text, operator)
        _ordered(right, text, operator)
    else:
        left, right = inside(left), inside(right)
        if isinstance(left, exp.Null) or isinstance(right, exp.Null):
            _refuse("Nothing can be compared to NULL: write IS NULL or IS NOT NULL", text, operator.start)
        if isinstance(left, exp.Boolean) and isinstance(right, exp.Literal):
            _refuse("TRUE and FALSE can't be compared to a literal on their right", text, operator.start)


def between(value: exp.Expr, low: exp.Expr, high: exp.Expr, negated: bool, text: str, operator: Token) -> None:
    for node in (value, low, high):
        _ordered(node, text, operator)
    low, high = inside(low), inside(high)
    if not negated and isinstance(low, exp.Literal) and isinstance(high, exp.Literal):
        least, greatest = literal_value(low), literal_value(high)
        assert isinstance(least, Number)
        assert isinstance(greatest, Number)
        if compare(least, greatest) > 0:
            _refuse("The lower bound of BETWEEN is above its upper bound", text, operator.start)


def compare(left: Number, right: Number) -> int:
    """ComparisonExpression.__compare of two numbers: -1, 0 or 1."""
    if NumberType.DOUBLE in (left.type, right.type):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def _ordered(node: exp.Expr, text: str, operator: Token) -> None:
    """Only numbers, properties and negated ones have an order."""
    node = inside(node)
    if isinstance(node, BOOLEANS) or (isinstance(node, exp.Literal) and node.is_string):
        _refuse(
            f"{operator.text.upper()} compares properties and numbers, not strings, booleans or NULL",
            text,
            operator.start,
        )


def _refuse(problem: str, text: str, position: int) -> NoReturn:
    raise InvalidExpression(problem + ".", text, position)
