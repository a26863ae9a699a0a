"""Random expressions: the reference, the predicates and the normal form agree."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filtering.predicate_value import holds
from filtering.sql92 import CompiledExpression, EvaluationError, InvalidExpression
from tests.depth import examples
from tests.unit.sql92.generator import Generator

seeds = st.integers(0, 2**32)


def compiled(seed):
    generator = Generator(seed)
    while True:
        try:
            return CompiledExpression(generator.expression()), generator.properties()
        except InvalidExpression:
            continue


@settings(max_examples=examples(50, deep=1_000), deadline=None)
@given(seeds)
def test_predicates_are_where_the_reference_is_true_and_where_it_fails(seed):
    expression, properties = compiled(seed)
    try:
        expected = expression.evaluate(properties) is True, False
    except EvaluationError:
        expected = False, True
    assert (holds(expression.predicate, properties), holds(expression.error_predicate, properties)) == expected


@settings(max_examples=examples(20, deep=300), deadline=None)
@given(seeds)
def test_commuting_and_doubling_change_nothing(seed):
    expression, _ = compiled(seed)
    text = expression.expression
    # "--" is a comment only where a line end follows, so what comes after a text can turn its signs into one.
    if "--" not in text and not any(finding.code == "ignored-input" for finding in expression.findings):
        doubled = CompiledExpression(f"({text}) AND ({text})")
        assert doubled.predicate is expression.predicate


@settings(max_examples=examples(50, deep=1_000), deadline=None)
@given(st.text(alphabet=string.printable + "é٥\x00", max_size=60))
def test_any_text_compiles_or_is_refused_with_a_place_in_it(text):
    try:
        place = len(CompiledExpression(text).predicate.properties)
    except InvalidExpression as error:
        place = error.position
    assert 0 <= place <= len(text)


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_names_a_case(seed):
    assert Generator(seed).expression() == Generator(seed).expression()
