"""The matcher against the real broker's answers to SQL92 expressions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from filtering.matcher import Matcher, match
from tests.unit.sql92.cases import compiled, expressions

MAP = pa.map_(pa.string(), pa.string())


def test_every_expression_over_every_message_gives_the_brokers_answer() -> None:
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
    bits = Matcher(predicates).match(pa.array(rows, MAP)).bits
    for outcome, of in (("TRUE", bits[: len(known)]), ("ERROR", bits[len(known) :])):
        found = of[expression, row // 64] >> (row % 64).astype(np.uint64) & np.uint64(1)
        expected = np.array([result == outcome for _, _, result in asked])
        wrong = [(answers[asked[i][0]]["expression"], *asked[i][1:]) for i in np.flatnonzero(found != expected)]
        assert not wrong, wrong[:10]


def test_match_takes_expressions() -> None:
    properties = pa.record_batch({"price": ["5", "12", None, "x"]})
    indptr, rows = match(properties, ["price > 10", "price IS NULL OR price = '5'"]).pairs()
    assert (indptr.tolist(), rows.tolist()) == ([0, 1, 3], [1, 0, 2])
