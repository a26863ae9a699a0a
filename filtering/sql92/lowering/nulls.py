"""Predicates about an operand of a comparison: it is NULL, it is not NULL, or its evaluation fails."""

from __future__ import annotations

from filtering.predicate import FALSE, TRUE, IsPresent, Not, Predicate
from filtering.sql92.lowering.evaluation_outcome import EvaluationOutcome, Lower
from filtering.sql92.lowering.operands import Nothing, Operand, Value
from filtering.sql92.normal_form.form import Form
from filtering.sql92.syntax.nodes import BooleanNode, Property
from filtering.sql92.syntax.walk import Steps


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
            return form.negation((yield from fails(lower, value)))


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


def fails(lower: Lower, value: Operand) -> Steps[Predicate]:
    """True if the evaluation of the operand fails."""
    node = value.evaluated if isinstance(value, Nothing) else value
    return (yield from lower(node, EvaluationOutcome.ERROR)) if isinstance(node, BooleanNode) else FALSE
