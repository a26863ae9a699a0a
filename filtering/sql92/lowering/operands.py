"""What stands on either side of a comparison, and when that is NULL or an ERROR.

Types are static: a property is text, a minus before anything but a number is NULL, the rest is
a literal or a boolean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from filtering.sql92.syntax.nodes import BOOLEANS, Number, inside, literal_value


@dataclass(frozen=True, slots=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A literal, or a number with its minus."""

    value: str | Number


@dataclass(frozen=True, slots=True)
class Boolean:
    node: exp.Expr


@dataclass(frozen=True, slots=True)
class Nothing:
    """NULL, once ``evaluated`` (if anything) has been evaluated without an error."""

    evaluated: exp.Expr | None = None


Operand: TypeAlias = Property | Value | Boolean | Nothing


def operand(node: exp.Expr) -> Operand:
    node = inside(node)
    minus = False
    negated = False
    while isinstance(node, exp.Neg):
        minus = True
        negated = not negated
        node = inside(node.this)
    if isinstance(node, exp.Literal):
        value = literal_value(node)
        if not minus or isinstance(value, Number):
            return Value(value.negated() if negated and isinstance(value, Number) else value)
        return Nothing()
    if isinstance(node, exp.Column):
        return Nothing() if minus else Property(node.name)
    if isinstance(node, exp.Null):
        return Nothing()
    assert isinstance(node, BOOLEANS)
    return Nothing(node) if minus else Boolean(node)
