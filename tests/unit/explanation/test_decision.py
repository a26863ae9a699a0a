"""Outcome, stage and reason of single messages: all quirks of the language, tags, and bit maps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from filtering.broker_config import BrokerConfig
from filtering.delivery import Outcome
from filtering.explanation import Stage
from tests.unit.broker import CASES
from tests.unit.explanation.subscribed import decided, subscribed

QUIRKS = [json.loads(line) for line in (CASES / "quirks.jsonl").read_text("utf-8").split("\n") if line]
OUTCOMES = {
    "TRUE": (Outcome.DELIVERED, Stage.CLIENT),
    "FALSE": (Outcome.STOPPED_BY_EXPRESSION, Stage.EXPRESSION),
    "NULL": (Outcome.STOPPED_BY_EXPRESSION, Stage.EXPRESSION),
    "ERROR": (Outcome.EXPRESSION_FAILED, Stage.EXPRESSION),
    "COMPILE ERROR": (Outcome.NOT_SUBSCRIBED, Stage.PULL),
}
BIT_MAPS = BrokerConfig(enable_property_filter=True, enable_calc_filter_bit_map=True, enable_consume_queue_ext=True)


@pytest.mark.parametrize("result", OUTCOMES)
def test_the_reason_is_right_for_every_quirk(result: str) -> None:
    quirks = [quirk for quirk in QUIRKS if quirk["result"] == result]
    assert len(quirks) > 15
    for quirk in quirks:
        row = subscribed(quirk["expression"])
        decision = decided(row, quirk["properties"] or {})
        assert (decision.outcome, decision.stage) == OUTCOMES[result], quirk
        assert reason_is_right(decision.reason, quirk, row.compile_error), (decision.reason, quirk)


def reason_is_right(reason: str, quirk: dict[str, Any], compile_error: str | None) -> bool:
    if quirk["result"] == "TRUE":
        return reason == "the expression is TRUE"
    if quirk["result"] == "COMPILE ERROR":
        return "FILTER_DATA_NOT_EXIST" in reason and str(compile_error).split("\n")[0] in reason
    if quirk["result"] == "ERROR":
        values = (quirk["properties"] or {}).values()
        names_the_value = "is not a Java" in reason and any(repr(value) in reason for value in [*values, "x"])
        return "fails: " in reason and (names_the_value or "a boolean on the left" in reason)
    return reason.startswith(f"the expression is {quirk['result']}: ")


@pytest.mark.parametrize(
    ("tags", "tag", "outcome", "part"),
    [
        ("paid || shipped", "paid", "DELIVERED", "the tag is subscribed"),
        ("paid", "open", "STOPPED_BY_TAGS_CODE", "the tag is 'open'; the group subscribes to 'paid'"),
        ("paid", None, "STOPPED_BY_TAGS_CODE", "the message has no tag"),
        ("Aa", "BB", "DROPPED_BY_CLIENT", "the tag 'BB' has the hash of 'Aa', 2112"),
        ("f5a5a608", None, "DROPPED_BY_CLIENT", "no tag has the hash of 'f5a5a608', 0"),
        (" || ", "paid", "STOPPED_BY_TAGS_CODE", "names no tag, and matches nothing"),
        ("||", "paid", "STOPPED_BY_TAGS_CODE", "names no tag, and matches nothing"),
        ("*", "open", "DELIVERED", "takes everything"),
    ],
)
def test_tags(tags: str, tag: str | None, outcome: str, part: str) -> None:
    decision = decided(subscribed(tags, "TAG"), {} if tag is None else {"TAGS": tag})
    assert decision.outcome == outcome
    assert part in decision.reason


@pytest.mark.parametrize(
    ("expression", "headline", "detail"),
    [
        ("(a = 'x:y') = b", "(a = 'x:y') = b fails", "a boolean on the left is compared with text; the broker"),
        ("a = 'x:y'", "the expression is FALSE", "a = 'x:y' is FALSE, a is '1'"),
    ],
)
def test_a_reason_is_a_headline_and_its_detail(expression: str, headline: str, detail: str) -> None:
    decision = decided(subscribed(expression), {"a": "1", "b": "1"})
    assert (decision.headline, decision.detail[: len(detail)]) == (headline, detail)
    assert decision.reason.startswith(f"{headline}: {detail}")


def test_a_long_text_that_is_no_number_is_shortened() -> None:
    reason = decided(subscribed("price > 5"), {"price": "9" * 30_000}).reason
    assert f"'{'9' * 59}…' is not a Java int" in reason
    assert len(reason) < 200


def test_the_bit_map_stops_what_did_not_match_when_it_was_stored() -> None:
    row = subscribed("a = 5", config=BIT_MAPS)
    nothing, everything = bytes(BIT_MAPS.bloom_filter.m // 8), b"\xff" * (BIT_MAPS.bloom_filter.m // 8)
    stopped = decided(row, {"a": "4"}, nothing, BIT_MAPS)
    assert (stopped.outcome, stopped.stage) == (Outcome.STOPPED_BY_BIT_MAP, Stage.BIT_MAP)
    assert "a = 5 is FALSE, a is '4'" in stopped.reason
    assert stopped.bit_map is not None
    assert set(stopped.bit_map.unset) == set(row.bit_pos or ())
    false_positive = decided(row, {"a": "4"}, everything, BIT_MAPS)
    assert false_positive.outcome is Outcome.STOPPED_BY_EXPRESSION
    made_without = decided(row, {"a": "5"}, nothing, BIT_MAPS)
    assert (made_without.outcome, "made without it" in made_without.reason) == (Outcome.STOPPED_BY_BIT_MAP, True)


@pytest.mark.parametrize(("bit_map", "why"), [(None, "no filter bit map"), (b"\0", "other parameters")])
def test_a_bit_map_that_does_not_count(bit_map: bytes | None, why: str) -> None:
    decision = decided(subscribed("a = 5", config=BIT_MAPS), {"a": "5"}, bit_map, BIT_MAPS)
    assert decision.outcome is Outcome.DELIVERED
    assert decision.bit_map is not None
    assert why in str(decision.bit_map.not_asked)


def test_messages_from_before_the_birth_of_the_filter_pass_the_bit_map() -> None:
    row = subscribed("a = 5", config=BIT_MAPS)
    assert row.filter_data is not None
    later = replace(row, filter_data=replace(row.filter_data, born_time=2_000))
    decision = decided(later, {"a": "5"}, bytes(BIT_MAPS.bloom_filter.m // 8), BIT_MAPS)
    assert decision.outcome is Outcome.DELIVERED
    assert decision.bit_map is not None
    assert "before the filter data was born" in str(decision.bit_map.not_asked)
