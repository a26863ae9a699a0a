"""Random expressions: the reference, the predicates and the normal form agree."""

import string
from collections.abc import Mapping

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from filtering.predicate import from_json, holds, to_json
from filtering.sql92 import CompiledExpression, EvaluationError, Expressions, InvalidExpression
from tests.depth import examples
from tests.unit.sql92.generator import ODD_TOKENS, expressions, properties

PRINTABLE = st.text(alphabet=string.printable + "é٥\x00", max_size=60)
TOKENS = st.lists(st.sampled_from(ODD_TOKENS), max_size=8).map(" ".join)


@st.composite
def compiled(draw: st.DrawFn) -> CompiledExpression:
    try:
        return CompiledExpression(draw(expressions()))
    except InvalidExpression:
        assume(False)


def agree(expression: CompiledExpression, message: Mapping[str, str]) -> bool:
    """Whether the predicates are true where the reference is TRUE, and where it fails."""
    try:
        expected = expression.evaluate(message) is True, False
    except EvaluationError:
        expected = False, True
    return (holds(expression.predicate, message), holds(expression.error_predicate, message)) == expected


@settings(max_examples=examples(50, deep=1_000), deadline=None)
@given(compiled(), properties())
def test_predicates_are_where_the_reference_is_true_and_where_it_fails(
    expression: CompiledExpression, message: Mapping[str, str]
) -> None:
    assert agree(expression, message)


@settings(max_examples=examples(50, deep=1_000), deadline=None)
@given(compiled())
def test_what_is_stored_of_an_expression_is_read_back(expression: CompiledExpression) -> None:
    predicate, error_predicate = from_json(to_json([expression.predicate, expression.error_predicate]))
    assert predicate is expression.predicate
    assert error_predicate is expression.error_predicate


# Many random expressions do not compile. Which ones are drawn depends on the modules that other tests have loaded.
@settings(max_examples=examples(20, deep=300), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(compiled())
def test_commuting_and_doubling_change_nothing(expression: CompiledExpression) -> None:
    text = expression.expression
    # "--" is a comment only where a line end follows, so what comes after a text can turn its signs into one.
    assume("--" not in text and not any(finding.code == "ignored-input" for finding in expression.findings))
    assert CompiledExpression(f"({text}) AND ({text})").predicate is expression.predicate


@settings(max_examples=examples(100, deep=2_000), deadline=None)
@given(PRINTABLE | TOKENS, properties())
def test_any_text_means_what_the_reference_says_or_is_refused_with_a_place_in_it(
    text: str, message: Mapping[str, str]
) -> None:
    expression = Expressions().compile(text)
    if isinstance(expression, InvalidExpression):
        assert 0 <= expression.position <= len(text)
    else:
        assert agree(expression, message)
