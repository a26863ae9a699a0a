"""The syntax tree: sqlglot's nodes, and what RocketMQ makes of them.

============== =====================================================================
``exp.Column`` a property
``Literal``    a string, an Integer, a Long or a Double
``Boolean``    TRUE, FALSE; ``Null`` is NULL
``Is``         IS NULL; IS NOT NULL is ``Not(Is)``, as <> is ``NEQ`` and NOT IN ``Not(In)``
``Contains``   CONTAINS, ``StartsWith``, ``EndsWith``; their NOT forms are ``NotFound`` of them
``Neg``        unary minus; unary plus leaves no node
``Paren``      parentheses around an operator
============== =====================================================================
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from filtering.java.numbers import INT_MAX, LONG_MAX
from filtering.predicate import NumberType

SEARCHES = (exp.Contains, exp.StartsWith, exp.EndsWith)
ORDERINGS = (exp.GT, exp.GTE, exp.LT, exp.LTE)


class NotFound(exp.Unary, exp.Predicate):
    """``a NOT CONTAINS 'x'``: not the negation of ``a CONTAINS 'x'``, both are FALSE without an ``a``."""


BOOLEANS = (
    exp.And,
    exp.Or,
    exp.Not,
    exp.EQ,
    exp.NEQ,
    exp.Is,
    exp.Between,
    exp.In,
    exp.Boolean,
    exp.Null,
    NotFound,
    *ORDERINGS,
    *SEARCHES,
)
"""What RocketMQ calls a BooleanExpression, TRUE, FALSE and NULL included."""


class Number(NamedTuple):
    """A java.lang.Integer, Long or Double."""

    type: NumberType
    value: int | float

    def negated(self) -> Number:
        return Number(self.type, -self.value)


def inside(node: exp.Expr) -> exp.Expr:
    """The node without parentheses around it; they mean nothing to the broker."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def literal_value(literal: exp.Literal) -> str | Number:
    """The value of a literal that the grammar let through."""
    image: str = literal.this
    if literal.is_string:
        return image
    return integer(image) if is_integer(image) else Number(NumberType.DOUBLE, float(image))


def is_integer(image: str) -> bool:
    return image.rstrip("lL").isdigit()


def integer(image: str) -> Number:
    """ConstantExpression.createFromDecimal: an Integer if it fits one, whatever the suffix."""
    value = int(image.rstrip("lL"))
    return Number(NumberType.INT if value <= INT_MAX else NumberType.LONG, value)


def is_long(image: str) -> bool:
    return len(image) < 21 and int(image.rstrip("lL")) <= LONG_MAX
