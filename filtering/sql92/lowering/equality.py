"""Where =, or IS, comes to an outcome, for operands that may be NULL or booleans."""

from __future__ import annotations

from collections.abc import Generator

from sqlglot import exp

from filtering.predicate import FALSE, TRUE, IsPresent, IsTrueText, Not, Predicate
from filtering.sql92.lowering import comparisons, nulls
from filtering.sql92.lowering.operands import Boolean, Operand, Property, Value
from filtering.sql92.lowering.outcome import Lowered, Outcome
from filtering.sql92.normal_form.normal_form import NormalForm
from filtering.sql92.syntax.nodes import Number


def equal(form: NormalForm, left: Operand, right: Operand, outcome: Outcome) -> Lowered:
    """Both sides are evaluated: two NULLs are equal, NULL on the left only is NULL, on the right FALSE."""
    met = yield from _met(form, left, right, outcome)
    if outcome is Outcome.ERROR:
        return form.any_of([(yield from nulls.fails(left)), (yield from nulls.fails(right)), met])
    left_side = nulls.is_null(form, left) if outcome is Outcome.TRUE else nulls.is_not_null(form, left)
    unmet = form.all_of([(yield from left_side), (yield from nulls.is_null(form, right))])
    return form.any_of([met, unmet])


def _met(form: NormalForm, left: Operand, right: Operand, outcome: Outcome) -> Lowered:
    """Two values that are not NULL."""
    match left, right:
        case Property(), Property():
            return comparisons.properties_equal(form, left.name, right.name, outcome)
        case (Property() as named, Value() as literal) | (Value() as literal, Property() as named):
            return comparisons.property_equals(form, named.name, literal.value, outcome)
        case Value(), Value():
            return comparisons.values_equal(left, right, outcome)
        case Boolean(), Value(Number()):
            return (yield from nulls.is_not_null(form, left)) if outcome is Outcome.FALSE else FALSE
        case Boolean(), (Property() | Value()):
            there = [(yield from nulls.is_not_null(form, left)), (yield from nulls.is_not_null(form, right))]
            return form.all_of(there) if outcome is Outcome.ERROR else FALSE
        case Value(Number()), Boolean():
            return (yield from nulls.is_not_null(form, right)) if outcome is Outcome.FALSE else FALSE
        case ((Property() | Value() | Boolean()), Boolean()) if outcome is not Outcome.ERROR:
            true, false = yield from _as_boolean(form, left)
            same, other = outcome, outcome.negated
            return form.any_of(
                [
                    form.all_of([true, (yield right.node, same)]),
                    form.all_of([false, (yield right.node, other)]),
                ]
            )
    return FALSE


def _as_boolean(
    form: NormalForm, value: Property | Value | Boolean
) -> Generator[tuple[exp.Expr, Outcome], Predicate, tuple[Predicate, Predicate]]:
    """Where the value on the left of a boolean is true, and where it is false."""
    match value:
        case Property(name):
            return IsTrueText(name), form.all_of([IsPresent(name), Not(IsTrueText(name))])
        case Value(value=text):
            assert isinstance(text, str)
            return (TRUE, FALSE) if text.lower() == "true" else (FALSE, TRUE)
        case Boolean(node):
            return (yield node, Outcome.TRUE), (yield node, Outcome.FALSE)
