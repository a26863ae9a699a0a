"""Comparisons of two values that are not NULL: predicates for the outcomes TRUE, FALSE and ERROR."""

from __future__ import annotations

from filtering.java.numbers import double_order
from filtering.predicate import (
    FALSE,
    OPPOSITE,
    TRUE,
    And,
    Comparison,
    DoublesCompare,
    IsNumber,
    IsPresent,
    Not,
    NumberIs,
    NumberType,
    Predicate,
    TextIn,
    TextsEqual,
)
from filtering.predicate_value import COMPARE, parse
from filtering.sql92.lowering.evaluation_outcome import EvaluationOutcome
from filtering.sql92.lowering.operands import Value
from filtering.sql92.normal_form.form import Form
from filtering.sql92.normal_form.normal_form import number_is, present_but_not
from filtering.sql92.syntax.nodes import Number, Property

_FLIPPED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
_REFLEXIVE = (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)


def values_equal(left: str | Number, right: str | Number, outcome: EvaluationOutcome) -> Predicate:
    """Compare two literals. The type of a number decides how a string is parsed."""
    if isinstance(left, str) and isinstance(right, str):
        result = _outcome(left == right)
    else:
        type_ = next(side.type for side in (left, right) if isinstance(side, Number))
        numbers = _to_number(left, type_), _to_number(right, type_)
        if numbers[0] is None or numbers[1] is None:
            result = EvaluationOutcome.ERROR
        else:
            result = _outcome(_numbers_compare(numbers[0], Comparison.EQUAL, numbers[1]))
    return TRUE if result is outcome else FALSE


def property_equals(name: str, value: str | Number, outcome: EvaluationOutcome) -> Predicate:
    """Compare a property with a literal. The result is in normal form."""
    if isinstance(value, Number):
        if outcome is EvaluationOutcome.ERROR:
            return _not_a_number(name, value.type)
        equal: Predicate = NumberIs(name, value.type, Comparison.EQUAL, value.value)
        return equal if outcome is EvaluationOutcome.TRUE else And((IsNumber(name, value.type), Not(equal)))
    if outcome is EvaluationOutcome.ERROR:
        return FALSE
    listed = TextIn(name, frozenset([value]))
    return listed if outcome is EvaluationOutcome.TRUE else present_but_not(listed)


def properties_equal(form: Form, left: str, right: str, outcome: EvaluationOutcome) -> Predicate:
    """Compare two properties that are present, as texts."""
    both = [IsPresent(left), IsPresent(right)]
    equal = TextsEqual(*sorted((left, right))) if left != right else IsPresent(left)
    match outcome:
        case EvaluationOutcome.TRUE:
            return equal
        case EvaluationOutcome.FALSE:
            return form.all_of([*both, Not(equal)])
        case EvaluationOutcome.ERROR:
            return FALSE


def ordered(
    form: Form, left: Property | Value, comparison: Comparison, right: Property | Value, outcome: EvaluationOutcome
) -> Predicate:
    """Compare two values as numbers. A number literal decides the type; two properties are doubles."""
    match left, right:
        case Property(), Value(value=Number() as number):
            return _property_ordered(left.name, comparison, number, outcome)
        case Value(value=Number() as number), Property():
            return _property_ordered(right.name, _FLIPPED[comparison], number, outcome)
        case Property(), Property():
            if left.name > right.name:
                left, right, comparison = right, left, _FLIPPED[comparison]
            return _properties_ordered(form, left.name, comparison, right.name, outcome)
        case Value(value=Number() as first), Value(value=Number() as second):
            return TRUE if outcome is _outcome(_numbers_compare(first, comparison, second)) else FALSE
    raise AssertionError("the grammar refuses to order anything else")


def _outcome(holds: bool) -> EvaluationOutcome:
    return EvaluationOutcome.TRUE if holds else EvaluationOutcome.FALSE


def _to_number(value: str | Number, type_: NumberType) -> Number | None:
    if isinstance(value, Number):
        return value
    number = parse(type_, value)
    return None if number is None else Number(type_, number)


def _numbers_compare(left: Number, comparison: Comparison, right: Number) -> bool:
    if NumberType.DOUBLE in (left.type, right.type):
        return COMPARE[comparison](double_order(float(left.value)), double_order(float(right.value)))
    return COMPARE[comparison](left.value, right.value)


def _property_ordered(name: str, comparison: Comparison, number: Number, outcome: EvaluationOutcome) -> Predicate:
    match outcome:
        case EvaluationOutcome.TRUE:
            return number_is(name, number.type, comparison, number.value)
        case EvaluationOutcome.FALSE:
            return number_is(name, number.type, OPPOSITE[comparison], number.value)
        case EvaluationOutcome.ERROR:
            return _not_a_number(name, number.type)


def _not_a_number(name: str, type_: NumberType) -> Predicate:
    """The property is present, but its text is not a number of the type. The result is in normal form."""
    return present_but_not(IsNumber(name, type_))


def _properties_ordered(
    form: Form, left: str, comparison: Comparison, right: str, outcome: EvaluationOutcome
) -> Predicate:
    numbers = [IsNumber(left, NumberType.DOUBLE), IsNumber(right, NumberType.DOUBLE)]
    if outcome is EvaluationOutcome.ERROR:
        both = [IsPresent(left), IsPresent(right)]
        return form.all_of([*both, form.negation(form.all_of(numbers))])
    if outcome is EvaluationOutcome.FALSE:
        comparison = OPPOSITE[comparison]
    if left == right:
        return numbers[0] if comparison in _REFLEXIVE else FALSE
    return DoublesCompare(left, right, comparison)
