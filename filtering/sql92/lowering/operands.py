"""The operands of comparisons, and predicates about them: is one NULL, not NULL, or does it fail?

Types are static: a property is text, a minus before anything but a number is NULL, and any other operand is a
literal or a boolean.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from filtering.predicate import FALSE, TRUE, IsPresent, Not, Predicate
from filtering.sql92.lowering.evaluation_outcome import EvaluationOutcome, Lower
from filtering.sql92.normal_form.form import Form
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
from filtering.sql92.syntax.walk import Steps


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


def is_null(form: Form, lower: Lower, value: Operand) -> Steps[Predicate]:
    """True if the operand is evaluated without a failure, and is NULL."""
    match value:
        case Property():
            return Not(IsPresent(value.name))
        case Value():
            return FALSE
        case BooleanNode():
            not_null = yield from is_not_null(form, lower, value)
            return form.negation(form.any_of([not_null, (yield from lower(value, EvaluationOutcome.ERROR))]))
        case Nothing():
            return form.negation((yield from operand_fails(lower, value)))


def is_not_null(form: Form, lower: Lower, value: Operand) -> Steps[Predicate]:
    """True if the operand is evaluated without a failure, and is not NULL."""
    match value:
        case Property():
            return IsPresent(value.name)
        case Value():
            return TRUE
        case BooleanNode():
            true = yield from lower(value, EvaluationOutcome.TRUE)
            return form.any_of([true, (yield from lower(value, EvaluationOutcome.FALSE))])
        case Nothing():
            return FALSE


def operand_fails(lower: Lower, value: Operand) -> Steps[Predicate]:
    """True if the evaluation of the operand fails."""
    node = value.evaluated if isinstance(value, Nothing) else value
    return (yield from lower(node, EvaluationOutcome.ERROR)) if isinstance(node, BooleanNode) else FALSE
