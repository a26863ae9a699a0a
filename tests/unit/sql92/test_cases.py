"""Every known answer of the broker."""

import pytest

from filtering.holds import holds
from filtering.sql92 import EvaluationError, InvalidExpression, compile
from tests.unit.sql92.cases import expressions

OUTCOMES = {True: "TRUE", False: "FALSE", None: "NULL"}
SAMPLE = 5


@pytest.fixture(scope="module")
def answers():
    return list(expressions())


def test_the_broker_accepts_what_compiles_and_refuses_what_does_not(answers):
    assert len(answers) > 6900
    wrong = []
    for answer in answers:
        try:
            compile(answer["expression"])
        except InvalidExpression:
            compiles = False
        else:
            compiles = True
        if compiles is not answer["compiles"]:
            wrong.append(answer["expression"])
    assert not wrong


def test_the_reference_has_the_brokers_outcome(answers):
    wrong = []
    for answer in answers:
        for case in answer["cases"]:
            try:
                outcome = OUTCOMES[compile(answer["expression"]).evaluate(case["properties"])]
            except EvaluationError:
                outcome = "ERROR"
            if outcome != case["result"]:
                wrong.append((answer["expression"], case, outcome))
    assert not wrong


def test_the_predicates_are_where_the_outcome_is_true_and_where_it_is_an_error(answers):
    """A sample: the matcher's tests and the Spark tests ask about all of them."""
    wrong = []
    for answer in answers[::SAMPLE]:
        for case in answer["cases"]:
            compiled = compile(answer["expression"])
            found = holds(compiled.predicate, case["properties"]), holds(compiled.error_predicate, case["properties"])
            if found != (case["result"] == "TRUE", case["result"] == "ERROR"):
                wrong.append((answer["expression"], case, found))
    assert not wrong
