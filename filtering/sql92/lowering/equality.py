"""Equality and IS NULL: predicates for an outcome, for operands that may be NULL or booleans."""

from __future__ import annotations

from filtering.predicate import FALSE, TRUE, TRUE_TEXTS, IsTrueText, Predicate
from filtering.sql92.lowering import comparisons
from filtering.sql92.lowering.evaluation_outcome import EvaluationOutcome, Lower
from filtering.sql92.lowering.operands import Operand, Value, is_not_null, is_null, operand_fails
from filtering.sql92.normal_form.form import Form
from filtering.sql92.normal_form.normal_form import present_but_not
from filtering.sql92.syntax.nodes import BooleanNode, Number, Property
from filtering.sql92.syntax.walk import Steps


def equal(form: Form, lower: Lower, left: Operand, right: Operand, outcome: EvaluationOutcome) -> Steps[Predicate]:
    """Both sides are evaluated. Two NULLs are equal. NULL on the left only gives NULL, on the right only FALSE."""
    if isinstance(left, Property) and isinstance(right, Value):
        return comparisons.property_equals(left.name, right.value, outcome)
    not_null = yield from _not_null_equal(form, lower, left, right, outcome)
    if outcome is EvaluationOutcome.ERROR:
        return form.any_of(
            [(yield from operand_fails(lower, left)), (yield from operand_fails(lower, right)), not_null]
        )
    left_side = is_null if outcome is EvaluationOutcome.TRUE else is_not_null
    right_null = [(yield from left_side(form, lower, left)), (yield from is_null(form, lower, right))]
    return form.any_of([not_null, form.all_of(right_null)])


def _not_null_equal(
    form: Form, lower: Lower, left: Operand, right: Operand, outcome: EvaluationOutcome
) -> Steps[Predicate]:
    """True if neither side is NULL and the comparison has the outcome."""
    match left, right:
        case Property(), Property():
            return comparisons.properties_equal(form, left.name, right.name, outcome)
        case (Property() as named, Value() as literal) | (Value() as literal, Property() as named):
            return comparisons.property_equals(named.name, literal.value, outcome)
        case Value(), Value():
            return comparisons.values_equal(left.value, right.value, outcome)
        case BooleanNode(), Value(value=Number()):
            return (yield from is_not_null(form, lower, left)) if outcome is EvaluationOutcome.FALSE else FALSE
        case BooleanNode(), (Property() | Value()):
            left_not_null = yield from is_not_null(form, lower, left)
            both = [left_not_null, (yield from is_not_null(form, lower, right))]
            return form.all_of(both) if outcome is EvaluationOutcome.ERROR else FALSE
        case Value(value=Number()), BooleanNode():
            return (yield from is_not_null(form, lower, right)) if outcome is EvaluationOutcome.FALSE else FALSE
        case ((Property() | Value() | BooleanNode()), BooleanNode()) if outcome is not EvaluationOutcome.ERROR:
            true, false = yield from _as_boolean(lower, left)
            same = yield from lower(right, outcome)
            other = yield from lower(right, outcome.negated)
            return form.any_of([form.all_of([true, same]), form.all_of([false, other])])
    return FALSE


def _as_boolean(lower: Lower, value: Property | Value | BooleanNode) -> Steps[tuple[Predicate, Predicate]]:
    """Predicates for the value on the left of a boolean: it is true, and it is false."""
    match value:
        case Property(name=name):
            return IsTrueText(name), present_but_not(IsTrueText(name))
        case Value(value=text):
            return (TRUE, FALSE) if text in TRUE_TEXTS else (FALSE, TRUE)
        case BooleanNode():
            return (yield from lower(value, EvaluationOutcome.TRUE)), (yield from lower(value, EvaluationOutcome.FALSE))
