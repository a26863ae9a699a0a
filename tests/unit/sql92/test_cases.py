"""Every known answer of the broker."""

import numpy as np
import pyarrow as pa

from filtering.matcher import Matcher
from filtering.predicate import holds
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
    """A sample: the matcher and the Spark tests are asked about all of them."""
    wrong = []
    for answer in expressions()[::SAMPLE]:
        for case in answer["cases"]:
            known = compiled(answer["expression"])
            outcomes = holds(known.predicate, case["properties"]), holds(known.error_predicate, case["properties"])
            if outcomes != (case["result"] == "TRUE", case["result"] == "ERROR"):
                wrong.append((answer["expression"], case, outcomes))
    assert not wrong


def test_the_matcher_gives_the_brokers_answer_to_every_expression_over_every_message() -> None:
    answers = [answer for answer in expressions() if answer["compiles"]]
    assert len(answers) > 5_000
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    asked = [
        (expression, rows.setdefault(tuple(sorted(case["properties"].items())), len(rows)), case["result"])
        for expression, answer in enumerate(answers)
        for case in answer["cases"]
    ]
    expression, row = np.array([(expression, row) for expression, row, _ in asked]).T
    known = [compiled(answer["expression"]) for answer in answers]
    predicates = [each.predicate for each in known] + [each.error_predicate for each in known]
    bits = Matcher(predicates).match(pa.array(rows, pa.map_(pa.string(), pa.string()))).bits
    for outcome, of in (("TRUE", bits[: len(known)]), ("ERROR", bits[len(known) :])):
        matches = of[expression, row // 64] >> (row % 64).astype(np.uint64) & np.uint64(1)
        expected = np.array([result == outcome for _, _, result in asked])
        wrong = [(answers[asked[i][0]]["expression"], *asked[i][1:]) for i in np.flatnonzero(matches != expected)]
        assert not wrong, wrong[:10]
