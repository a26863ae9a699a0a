"""advise, compared with the effect of filter bit maps in real brokers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from answers.advise import advice
from answers.facts import open_facts
from filtering.subscription_data import SQL92
from jobs import advise
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import Run, rows_of
from tests.nights.growing_broker import BEFORE, LOW, GrowingBroker, after, event, sql
from tests.replayed import Replayed


@pytest.mark.parametrize("name", ["dev", "otherbloom"])
def test_what_is_predicted_is_about_what_the_broker_measured(replayed: Replayed, name: str) -> None:
    stats = list(rows_of(replayed(name), "delivery_stats"))
    topics = advice(open_facts(replayed(name)))
    assert {each.topic for each in topics} == {"OrderEvents", "DeviceTelemetry", "TagLab"}
    for each in topics:
        assert each.bit_map.use
        assert each.bit_map.measured_rate == pytest.approx(each.bit_map.false_positive_rate, abs=0.03)
        topic_stats = [row for row in stats if row["topic"] == each.topic]
        assert each.load.false_positives is not None
        assert each.load.false_positives <= sum(row["bit_map_false_positives"] for row in topic_stats)


def test_the_reads_are_those_of_the_pulls_that_were_made(nights: Path) -> None:
    """Some groups registered late, and then pulled messages whose bit maps do not cover them."""
    facts = open_facts(Warehouse.at(str(nights / "4")))
    users = {
        (row.consumer_group, row.topic)
        for row in facts.in_force
        if row.expression_type == SQL92 and row.filter_data and row.dead_time is None and not row.sent_with_pull
    }
    begins = [0, *(night.as_of or 0 for night in facts.nights)]
    spans = {night.run: (begin, night.as_of or 0) for begin, night in zip(begins, facts.nights, strict=False)}
    with_tags = {
        (row.consumer_group, row.topic, run)
        for run, (begin, end) in spans.items()
        for row in facts.history
        if row.is_consuming and row.expression_type != SQL92
        if row.valid_from <= end and (row.valid_to is None or row.valid_to > begin)
    }
    read: Counter[str] = Counter()
    for row in rows_of(facts.warehouse, "delivery_stats"):
        whose = row["consumer_group"], row["topic"]
        if whose in users and (*whose, row["run"]) not in with_tags:
            read[row["topic"]] += row["passed_stage1"]
    topics = advice(facts)
    assert {each.topic: each.bit_map.reads_with for each in topics} == {each.topic: read[each.topic] for each in topics}
    assert any(each.load.unchecked for each in topics)


def test_nights_without_bit_maps_are_no_measurement(broker: GrowingBroker) -> None:
    config = broker.folder / "broker.conf"
    with_bit_map = config.read_text()
    config.write_text("brokerName=b\nenablePropertyFilter=true\n")
    lines = [sql(BEFORE, "cg", LOW)]
    broker.night(lines)
    config.write_text(with_bit_map)
    broker.grow()
    assert broker.night(lines, "--redo-from", broker.log.messages[10].stored_at).code == 0
    (topic_advice,) = advice(open_facts(Warehouse.at(str(broker.folder / "w"))))
    assert (topic_advice.bit_map.measured_rate, topic_advice.bit_map.use) == (None, True)


def test_nights_with_tags_do_not_count(broker: GrowingBroker) -> None:
    """The group had tags in the first night, changed in the second one, and had SQL92 in the third."""
    lines = [event(BEFORE, "register", "cg", type="TAG", expression="*", consume_from="first")]
    broker.night(lines)
    for _ in range(2):
        broker.grow()
        lines = [*lines[:1], sql(after(15), "cg", "n = '25'")]
        broker.night(lines)
    (topic_advice,) = advice(open_facts(Warehouse.at(str(broker.folder / "w"))))
    load = topic_advice.load
    assert (load.scanned, load.passed_stage1, load.matched) == (10, 1, 1)


def test_a_broker_without_bit_maps_is_told_what_they_would_save(replayed: Replayed) -> None:
    (orders,) = (each for each in advice(open_facts(replayed("plain"))) if each.topic == "OrderEvents")
    assert orders.bit_map.measured_rate is None
    assert orders.bit_map.reads_with < orders.bit_map.reads_without


def test_the_command_has_topics_and_findings(replayed: Replayed, run: Run) -> None:
    given = ("--warehouse", replayed("dev").location)
    out = run(advise, *given).out
    assert "  OrderEvents: on: it saves " in out
    assert "The filter bit map is on for all topics of the broker" in out
    assert "cg_sql_price_int on OrderEvents" in out
    made = json.loads(run(advise, *given, "--json").out)
    assert made["bit_map_is_on"] is True
    assert [each["topic"] for each in made["topics"]] == ["DeviceTelemetry", "OrderEvents", "TagLab"]
    assert made["topics"][1]["load"]["dead_groups"] == 1
    assert made["findings"]
