"""What would have been delivered, applied, is delivered."""

from __future__ import annotations

import pytest

from filtering import sql92
from filtering.explanation import changed, nearest_change
from tests.unit.explanation.subscribed import decided, missed, subscribed
from tests.unit.sql92.cases import compiled, expressions

EVERY = 30


@pytest.mark.parametrize(
    ("expression", "properties", "text"),
    [
        ("region = 'hangzhou' AND price > 50.0", {"region": "O'Brien", "price": "107.01"}, "region = 'hangzhou'"),
        ("price > 50", {"price": "55.10"}, "price > 50.0"),
        ("price > -50", {"price": "55.10"}, "price > -50.0"),
        ("price > (-5)", {"price": "12.50"}, "price > (-5.0)"),
        ("price > -(-5)", {"price": "12.50"}, "price > -(-5.0)"),
        ("price > 50", {"price": "5"}, "price = '51'"),
        ("price > 50.0", {"price": "5"}, "price = '50.01'"),
        ("price BETWEEN 10 AND 20", {}, "price = '20'"),
        ("color IN ('red', 'green')", {"color": "greem"}, "color = 'green'"),
        ("a IS NULL", {"a": "1"}, "without a"),
        ("a CONTAINS 'x'", {"a": "b"}, "a = 'bx'"),
        ("a = b", {"a": "1", "b": "2"}, "b = '1'"),
        ("a > b AND b = 50", {"a": "5", "b": "50"}, "a = '50.01'"),
        ("a = 'x' AND b = 'y'", {"a": "1"}, "a = 'x' and b = 'y'"),
        ("a = 'x' OR b = 5 AND c = 6", {}, "a = 'x'"),
        ("NOT (flag = TRUE)", {"flag": "true"}, "flag = 'false'"),
        ("name = 'it''s'", {}, "name = 'it''s'"),
        ("region = beijing OR (shanghai)", {"region": "shanghai"}, "region = 'shanghai'"),
        ("region = 'xian' OR beijing", {"region": "beijing"}, "region = 'beijing'"),
    ],
)
def test_the_smallest_change(expression: str, properties: dict[str, str], text: str) -> None:
    row = subscribed(expression)
    miss = missed(row, properties)
    assert miss is not None
    assert miss.text == text
    changed = sql92.compile(miss.expression or expression)
    assert changed.evaluate(miss.applied(properties)) is True


@pytest.mark.parametrize(("expression", "type"), [("flag", "SQL92"), ("a = 1 AND a = 2", "SQL92"), (" || ", "TAG")])
def test_where_no_message_would_match(expression: str, type: str) -> None:
    assert missed(subscribed(expression, type), {"flag": "true", "TAGS": "a"}) is None


def test_one_of_thousands_of_integers_is_written_as_a_decimal() -> None:
    """Only the comparison that failed is tried: each try compiles the whole expression."""
    others = " OR ".join(f"a = {i}" for i in range(2_000))
    miss = missed(subscribed(f"{others} OR price > 50 OR {others}"), {"price": "55.10"})
    assert miss is not None
    assert miss.text == "price > 50.0"


@pytest.mark.parametrize("listed", [",".join(f"'{i}'" for i in range(34_000))])
def test_an_expression_of_the_greatest_length_has_no_longer_one(listed: str) -> None:
    miss = missed(subscribed(f"a IN({listed}) OR price > 50"), {"a": "x", "price": "55.10"})
    assert miss is not None
    assert miss.expression is None


def test_a_tag_that_is_subscribed() -> None:
    row = subscribed("paid || shipped", "TAG")
    miss = missed(row, {"TAGS": "shiped"})
    assert miss is not None
    assert miss.text == "TAGS = 'shipped'"
    assert decided(row, miss.applied({"TAGS": "shiped"})).outcome == "DELIVERED"


def test_a_message_that_is_delivered_misses_nothing() -> None:
    assert missed(subscribed("a = 5"), {"a": "5"}) is None


def test_changes_of_the_brokers_cases_match_and_are_found_mostly() -> None:
    misses = missing = 0
    for expression in expressions()[::EVERY]:
        if not expression["compiles"] or len(expression["expression"]) > 500:
            continue
        known = compiled(expression["expression"])
        for case in expression["cases"][:4]:
            properties = case["properties"] or {}
            change = nearest_change(known.predicate, properties)
            if change is None:
                missing += known.predicate is not sql92.compile("FALSE").predicate
                continue
            misses += 1
            assert known.evaluate(changed(properties, change)) is True, (expression, properties, change)
    assert misses > 300
    assert missing < misses / 20
