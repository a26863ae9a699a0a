"""The evaluated tree against the real broker's answers."""

from __future__ import annotations

from typing import Any

import pytest

from filtering import sql92
from filtering.sql92.nodes import expression_text
from filtering.sql92.reference import Result, trace
from tests.unit.sql92.cases import compiled, expressions

LONG = 2_000
"""Characters of an expression that takes too long here."""
EVERY = 24


def some() -> list[dict[str, Any]]:
    return [e for e in expressions()[::EVERY] if e["compiles"] and len(e["expression"]) < LONG]


def test_the_result_is_the_brokers_and_some_leaf_decides_it() -> None:
    checked = 0
    for expression in some():
        for case in expression["cases"]:
            made = trace(compiled(expression["expression"]), case["properties"] or {})
            assert made.result.value == case["result"], (expression, case)
            assert any(leaf.decides for leaf in made.leaves())
            checked += 1
    assert checked > 1_500


def test_a_part_written_out_means_the_same() -> None:
    for expression in some():
        known = compiled(expression["expression"])
        again = sql92.compile(expression_text(known.syntax_tree))
        assert (again.predicate, again.error_predicate) == (known.predicate, known.error_predicate), expression


@pytest.mark.parametrize(
    ("expression", "properties", "leaves"),
    [
        (
            "region = 'hangzhou' AND price > 50.0",
            {"region": "O'Brien", "price": "107.01"},
            [("region = 'hangzhou'", Result.FALSE, True), ("price > 50.0", Result.NOT_EVALUATED, False)],
        ),
        (
            "price > 50.0 AND region = 'hangzhou'",
            {"region": "x", "price": "107.01"},
            [("price > 50.0", Result.TRUE, False), ("region = 'hangzhou'", Result.FALSE, True)],
        ),
        (
            "NOT (a = 5 OR b = 6)",
            {"a": "4", "b": "6"},
            [("a = 5", Result.FALSE, False), ("b = 6", Result.TRUE, True)],
        ),
        ("a = 5 OR TRUE", {"a": "x"}, [("a = 5", Result.ERROR, True), ("TRUE", Result.NOT_EVALUATED, False)]),
        ("a = 5 AND b = 6", {"a": "5"}, [("a = 5", Result.TRUE, False), ("b = 6", Result.NULL, True)]),
        ("NOT a = 5", {"a": "5"}, [("NOT a = 5", Result.FALSE, True)]),
    ],
)
def test_leaves_with_their_marks(
    expression: str, properties: dict[str, str], leaves: list[tuple[str, Result, bool]]
) -> None:
    made = trace(sql92.compile(expression), properties)
    assert [(leaf.text, leaf.result, leaf.decides) for leaf in made.leaves()] == leaves


def test_a_long_or_deep_expression_is_no_matter() -> None:
    chain = " OR ".join(f"a = '{i}'" for i in range(1_000))
    assert len(list(trace(sql92.compile(chain), {"a": "x"}).leaves())) == 1_000
    deep = "(" * 500 + "a = 1" + " AND b = 2)" * 500
    assert trace(sql92.compile(deep), {"a": "1", "b": "2"}).result is Result.TRUE


def test_the_longest_list_is_no_matter() -> None:
    """Written out, with a blank after each comma, it is longer than an expression can be."""
    listed = ",".join(f"'{i}'" for i in range(34_000))
    assert trace(sql92.compile(f"a IN({listed})"), {"a": "x"}).result is Result.FALSE
