"""What stands on either side of a comparison, and when that is NULL or an ERROR.

Types are static: a property is text, a minus before anything but a number is NULL, the rest is
a literal or a boolean.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from filtering.sql92.syntax.nodes import (
    BooleanNode,
    Minus,
    Node,
    NullLiteral,
    Number,
    NumberLiteral,
    Parentheses,
    Property,
    TextLiteral,
)


class Value(NamedTuple):
    """A literal, or a number with its minus."""

    value: str | Number


class Nothing(NamedTuple):
    """NULL, once ``evaluated`` (if anything) has been evaluated without an error."""

    evaluated: BooleanNode | None = None


Operand: TypeAlias = Property | Value | BooleanNode | Nothing
"""A BooleanNode here is never NULL itself: that is Nothing."""


def operand(node: Node) -> Operand:
    minus = negative = False
    while isinstance(node, (Parentheses, Minus)):
        if isinstance(node, Minus):
            minus, negative = True, not negative
        node = node.operand
    match node:
        case NumberLiteral(value=value):
            return Value(value.negated() if negative else value)
        case Property():
            return Nothing() if minus else node
        case TextLiteral(value=text):
            return Nothing() if minus else Value(text)
        case NullLiteral():
            return Nothing()
        case BooleanNode():
            return Nothing(node) if minus else node
    raise TypeError(f"{type(node).__name__} is no operand")
