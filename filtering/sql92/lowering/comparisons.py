"""Two values that are not NULL, compared: where that is TRUE, FALSE or an ERROR."""

from __future__ import annotations

from functools import lru_cache

from filtering.holds import COMPARE
from filtering.predicate import (
    FALSE,
    TRUE,
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
from filtering.sql92.errors import EvaluationError
from filtering.sql92.lowering.operands import Property, Value
from filtering.sql92.lowering.outcome import Outcome
from filtering.sql92.normal_form.normal_form import NormalForm, number_is
from filtering.sql92.reference import equal, order
from filtering.sql92.syntax.nodes import Number

_OPPOSITE = {
    Comparison.LESS: Comparison.GREATER_OR_EQUAL,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER,
    Comparison.GREATER: Comparison.LESS_OR_EQUAL,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS,
}
_FLIPPED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
_REMEMBERED = 4_096
_REFLEXIVE = (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)


def values_equal(left: Value, right: Value, outcome: Outcome) -> Predicate:
    try:
        result = Outcome.TRUE if equal(left.value, right.value) else Outcome.FALSE
    except EvaluationError:
        result = Outcome.ERROR
    return TRUE if result is outcome else FALSE


def property_equals(form: NormalForm, name: str, value: str | Number, outcome: Outcome) -> Predicate:
    if isinstance(value, Number):
        same: Predicate = NumberIs(name, value.type, Comparison.EQUAL, value.value)
        comparable: Predicate = IsNumber(name, value.type)
    else:
        same, comparable = TextIn(name, frozenset([value])), IsPresent(name)
    match outcome:
        case Outcome.TRUE:
            return same
        case Outcome.FALSE:
            return form.all_of([comparable, Not(same)])
        case Outcome.ERROR:
            return _no_number(name, value.type) if isinstance(value, Number) else FALSE


def properties_equal(form: NormalForm, left: str, right: str, outcome: Outcome) -> Predicate:
    both = [IsPresent(left), IsPresent(right)]
    same = TextsEqual(*sorted((left, right))) if left != right else IsPresent(left)
    match outcome:
        case Outcome.TRUE:
            return same
        case Outcome.FALSE:
            return form.all_of([*both, Not(same)])
        case Outcome.ERROR:
            return FALSE


def ordered(
    form: NormalForm, left: Property | Value, comparison: Comparison, right: Property | Value, outcome: Outcome
) -> Predicate:
    match left, right:
        case Property(), Value(Number() as number):
            return _property_ordered(left.name, comparison, number, outcome)
        case Value(Number() as number), Property():
            return _property_ordered(right.name, _FLIPPED[comparison], number, outcome)
        case Property(), Property():
            if left.name > right.name:
                left, right, comparison = right, left, _FLIPPED[comparison]
            return _properties_ordered(form, left.name, comparison, right.name, outcome)
        case Value(), Value():
            holds = COMPARE[comparison](order(left.value, right.value), 0)
            return TRUE if outcome is (Outcome.TRUE if holds else Outcome.FALSE) else FALSE
    raise AssertionError("the grammar refuses to order anything else")


def _property_ordered(name: str, comparison: Comparison, number: Number, outcome: Outcome) -> Predicate:
    match outcome:
        case Outcome.TRUE:
            return number_is(name, number.type, comparison, number.value)
        case Outcome.FALSE:
            return number_is(name, number.type, _OPPOSITE[comparison], number.value)
        case Outcome.ERROR:
            return _no_number(name, number.type)


@lru_cache(_REMEMBERED)
def _no_number(name: str, type_: NumberType) -> Predicate:
    """There is a text, and it doesn't parse."""
    return NormalForm().all_of([IsPresent(name), Not(IsNumber(name, type_))])


def _properties_ordered(form: NormalForm, left: str, comparison: Comparison, right: str, outcome: Outcome) -> Predicate:
    numbers = [IsNumber(left, NumberType.DOUBLE), IsNumber(right, NumberType.DOUBLE)]
    if outcome is Outcome.ERROR:
        both = [IsPresent(left), IsPresent(right)]
        return form.all_of([*both, form.negation(form.all_of(numbers))])
    if outcome is Outcome.FALSE:
        comparison = _OPPOSITE[comparison]
    if left == right:
        return numbers[0] if comparison in _REFLEXIVE else FALSE
    return DoublesCompare(left, right, comparison)
