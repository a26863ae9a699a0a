"""The operands of comparisons.

Types are static: a property is text, a minus before anything but a number is NULL, and any other operand is a
literal or a boolean.
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
    """A literal. The value of a number includes its minus."""

    value: str | Number


class Nothing(NamedTuple):
    """NULL. ``evaluated`` (if any) is evaluated before, and may fail."""

    evaluated: BooleanNode | None = None


Operand: TypeAlias = Property | Value | BooleanNode | Nothing
"""A NULL literal is always Nothing, never a BooleanNode."""


def operand(node: Node) -> Operand:
    """The operand that a node is, without its parentheses and with its minuses applied."""
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
    raise TypeError(f"{type(node).__name__} is not an operand")
