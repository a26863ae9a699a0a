"""Every known answer of the broker."""

from filtering.predicate_value import holds
from filtering.sql92 import EvaluationError, InvalidExpression
from tests.unit.sql92.cases import compiled, expressions

OUTCOMES = {True: "TRUE", False: "FALSE", None: "NULL"}
SAMPLE = 5


def test_the_broker_accepts_what_compiles_and_refuses_what_does_not() -> None:
    assert len(expressions()) > 6900
    wrong = []
    for answer in expressions():
        try:
            compiled(answer["expression"])
        except InvalidExpression:
            compiles = False
        else:
            compiles = True
        if compiles is not answer["compiles"]:
            wrong.append(answer["expression"])
    assert not wrong


def test_the_reference_has_the_brokers_outcome() -> None:
    wrong = []
    for answer in expressions():
        for case in answer["cases"]:
            try:
                outcome = OUTCOMES[compiled(answer["expression"]).evaluate(case["properties"])]
            except EvaluationError:
                outcome = "ERROR"
            if outcome != case["result"]:
                wrong.append((answer["expression"], case, outcome))
    assert not wrong


def test_the_predicates_are_where_the_outcome_is_true_and_where_it_is_an_error() -> None:
    """A sample: the matcher's tests and the Spark tests ask about all of them."""
    wrong = []
    for answer in expressions()[::SAMPLE]:
        for case in answer["cases"]:
            known = compiled(answer["expression"])
            found = holds(known.predicate, case["properties"]), holds(known.error_predicate, case["properties"])
            if found != (case["result"] == "TRUE", case["result"] == "ERROR"):
                wrong.append((answer["expression"], case, found))
    assert not wrong
