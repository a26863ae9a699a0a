"""Where an operand of a comparison is NULL, is not, or its evaluation fails."""

from __future__ import annotations

from sqlglot import exp

from filtering.predicate import FALSE, TRUE, IsPresent, Not
from filtering.sql92.lowering.operands import Boolean, Nothing, Operand, Property, Value
from filtering.sql92.lowering.outcome import Lowered, Outcome
from filtering.sql92.normal_form.normal_form import NormalForm


def is_null(form: NormalForm, value: Operand) -> Lowered:
    match value:
        case Property():
            return Not(IsPresent(value.name))
        case Value():
            return FALSE
        case Boolean():
            there = yield from is_not_null(form, value)
            return form.negation(form.any_of([there, (yield value.node, Outcome.ERROR)]))
        case Nothing():
            return form.negation((yield from fails(value)))


def is_not_null(form: NormalForm, value: Operand) -> Lowered:
    match value:
        case Property():
            return IsPresent(value.name)
        case Value():
            return TRUE
        case Boolean():
            return form.any_of([(yield value.node, Outcome.TRUE), (yield value.node, Outcome.FALSE)])
        case Nothing():
            return FALSE


def fails(value: Operand) -> Lowered:
    match value:
        case Boolean():
            return (yield value.node, Outcome.ERROR)
        case Nothing(exp.Expr() as evaluated):
            return (yield evaluated, Outcome.ERROR)
        case _:
            return FALSE
