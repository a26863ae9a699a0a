"""what-if of groups that once had another filter: what the change itself gains and loses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from answers.facts import open_facts
from answers.lag import lag
from answers.what_if import what_if as tried
from filtering.names import RETRY_TOPIC_PREFIX
from filtering.subscriptions.events import GroupTopic
from filtering.time_spans import BEGINNING, FOREVER
from jobs import what_if
from schemas.delta.warehouse import Warehouse
from tests.broker_log import EVERY, FIRST_TIME
from tests.nights.commands import NIGHTS, Run
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, after, event, sql

GATE = ("--max-lost", 0, "--max-gained", 0)
HIGH_REWRITTEN = "n IN ('15','9','8','7','6') OR n = '5'"


@pytest.fixture
def changed(broker: GrowingBroker) -> GrowingBroker:
    """The group receives 0 to 4 of ten messages by LOW, and 6 to 9 by HIGH, which comes after message 5."""
    broker.night([sql(BEFORE, "cg", LOW), sql(after(6), "cg", HIGH)])
    assert broker.received("cg") == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    return broker


def test_a_rewritten_filter_passes_the_gate_after_an_earlier_filter(changed: GrowingBroker, run: Run) -> None:
    ended = run(what_if, "--warehouse", changed.folder / "w", "--group", "cg", "--sql", HIGH_REWRITTEN, *GATE)
    assert (ended.code, ended.error) == (0, "")
    lines = ended.out.splitlines()
    facts = open_facts(Warehouse.at(str(changed.folder / "w")))
    (change,) = tried(facts, facts.subscriptions_of("cg")[-1:], (BEGINNING, FOREVER))
    assert "<li>against the filter in force, as if it had always been: 0 gained, 0 lost" in change._repr_html_()
    assert lines[:6] == [
        "**Verdict: passed**", "",
        "- passed: the change loses 0 messages, within --max-lost 0", "- passed: no subscription ends",
        "- passed: the change gains 0 messages, within --max-gained 0", "",
    ]  # fmt: skip
    assert lines[6] == "## cg on T: 1 gained, 5 lost, 4 kept"
    assert "- the new filter delivers the same messages as the old one" in lines
    counts = "- against the filter in force, as if it had always been: 0 gained, 0 lost"
    assert f"{counts}; --max-gained and --max-lost count these" in lines
    assert any(line.startswith("- 1 of the gained messages pass the filter in force, too:") for line in lines)
    assert any(line.startswith("- 5 of the lost messages do not pass the filter in force either:") for line in lines)


def test_the_gate_sees_what_an_earlier_filter_hides(changed: GrowingBroker, run: Run) -> None:
    """Message 5 passes HIGH, and came before it: LOW loses 4 of the received messages, and 5 of those that pass."""
    given = ("--warehouse", changed.folder / "w", "--group", "cg", "--sql", LOW, "--json")
    ended = run(what_if, *given, "--max-lost", 4)
    assert (ended.code, ended.error) == (3, "mqsieve: the change loses 5 messages, more than --max-lost 4\n")
    (change,) = json.loads(ended.out)["changes"]
    assert (change["gained"], change["lost"], change["kept"]) == (0, 4, 5)
    assert change["against_in_force"] == {"gained": 5, "lost": 5, "same_gains": 0, "same_losses": 0}
    assert run(what_if, *given, "--max-lost", 5, "--max-gained", 5).code == 0


def test_without_an_earlier_filter_there_is_one_comparison(broker: GrowingBroker, run: Run) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--sql", HIGH)
    assert "against the filter in force" not in run(what_if, *given).out
    (change,) = json.loads(run(what_if, *given, "--json").out)["changes"]
    assert change["against_in_force"] == {"gained": 5, "lost": 5, "same_gains": 0, "same_losses": 0}


def test_the_filters_in_force_change_nothing_in_the_nights_of_a_real_broker(nights: Path) -> None:
    """Of its groups, some had other filters. One lost messages that the broker deleted before it pulled them: no filter
    would have brought them."""
    facts = open_facts(Warehouse.at(str(nights / "4")))
    rows = [row for row in facts.in_force if not row.topic.startswith(RETRY_TOPIC_PREFIX)]
    change_of_group = {each.key[0]: each for each in tried(facts, rows, (BEGINNING, FOREVER))}
    compared = [each for each in change_of_group.values() if each.against_in_force is not None]
    assert len(compared) > 20
    assert {(each.gained_by_change, each.lost_by_change) for each in compared} == {(0, 0)}
    assert {group for group, each in change_of_group.items() if len(each.lost)} >= {"cg_sql_change_boundary"}
    assert len(change_of_group["cg_expired"].gained) == 0


@pytest.mark.parametrize("night", NIGHTS)
def test_what_is_pending_is_what_lag_counts(nights: Path, night: int) -> None:
    """In night 3, cg_expired is away, and the broker has deleted some of what it missed."""
    facts = open_facts(Warehouse.at(str(nights / str(night))))
    behind: Counter[GroupTopic] = Counter()
    for row in lag(facts):
        behind[row.consumer_group, row.topic] += row.would_get
    rows = [row for row in facts.in_force if row.topic in facts.topics]
    pending = {each.key: each.pending for each in tried(facts, rows, (BEGINNING, FOREVER))}
    assert {key: count for key, count in pending.items() if count} == +behind


def test_the_period_is_named_and_may_be_empty(changed: GrowingBroker, run: Run) -> None:
    given = ("--warehouse", changed.folder / "w", "--group", "cg", "--sql", HIGH)
    period = ("--from", FIRST_TIME, "--to", FIRST_TIME + 3 * EVERY)
    out = run(what_if, *given, *period).out
    assert "- only messages stored from 2026-11-18 11:06:40.000 and before 2026-11-18 11:06:43.000: 3 of T" in out
    assert "no message to compare" not in out
    empty = run(what_if, *given, "--to", FIRST_TIME).out.splitlines()
    assert "- only messages stored before 2026-11-18 11:06:40.000: 0 of T" in empty
    assert "- there is no message to compare" in empty
    assert run(what_if, *given, *GATE).error == ""
    gated = run(what_if, *given, *GATE, "--to", FIRST_TIME, "--json")
    nothing = "there is no message to compare"
    assert (gated.code, gated.error) == (0, f"mqsieve: {nothing}: --max-lost and --max-gained hold for nothing\n")
    facts = open_facts(Warehouse.at(str(changed.folder / "w")))
    (change,) = tried(facts, facts.subscriptions_of("cg")[-1:], (BEGINNING, FIRST_TIME))
    assert f"- {nothing}" in str(change).splitlines()
    assert f"<li>{nothing}</li>" in change._repr_html_()
    made = json.loads(run(what_if, *given, *period, "--json").out)["changes"][0]
    assert (made["from"], made["to"], made["stored"]) == (FIRST_TIME, FIRST_TIME + 3 * EVERY, 3)


def test_messages_of_a_topic_that_was_deleted_are_gained_as_well_as_lost(broker: GrowingBroker, run: Run) -> None:
    """The groups come before and after the topic is deleted and created again."""
    broker.night([sql(BEFORE, "cg", LOW)])
    broker.log.queues.clear()
    broker.grow()
    late = sql(after(12), "late", LOW)
    broker.night([sql(BEFORE, "cg", LOW), late])
    given = ("--warehouse", broker.folder / "w", "--sql", HIGH, "--json", "--group")
    changes = [json.loads(run(what_if, *given, group).out)["changes"][0] for group in ("cg", "late")]
    counts = [(change["gained"], change["lost"], change["cost"]["scanned"]) for change in changes]
    assert counts == [(10, 10, 20), (5, 5, 10)]
    against = [change["against_in_force"] for change in changes]
    assert [(each["gained"], each["lost"]) for each in against] == [(10, 10), (5, 5)]


@pytest.mark.parametrize("tags", ["*", "a"])
def test_a_retry_topic_is_filtered_by_the_other_subscriptions(broker: GrowingBroker, run: Run, tags: str) -> None:
    """With filterSupportRetry, a broker before 5.1.4 asks the filter of the original topic, besides the tags."""
    retry = f"{RETRY_TOPIC_PREFIX}cg"
    config = broker.folder / "broker.conf"
    config.write_text(config.read_text() + "filterSupportRetry=true\n")
    broker.log.append(10, topic=retry, RETRY_TOPIC="T", TAGS="a").write(broker.folder / "store")
    every_tag = json.loads(event(BEFORE, "register", "cg", consume_from="first", expression="*")) | {"topic": retry}
    broker.night([sql(BEFORE, "cg", LOW), json.dumps(every_tag)], "--rocketmq-version", "4.9.7")
    given = ("--warehouse", broker.folder / "w", "--group", "cg")
    ended = run(what_if, *given, "--topic", retry, "--tags", tags, "--json", *GATE)
    (change,) = json.loads(ended.out)["changes"]
    assert (ended.code, ended.error) == (0, "")
    assert (ended.code, change["gained"], change["lost"], change["kept"], change["relation"]) == (0, 0, 0, 5, None)
    follow = "the broker filters redeliveries by this filter, too (filterSupportRetry): they are not compared"
    assert follow in run(what_if, *given, "--topic", "T", "--sql", HIGH).out
    assert follow not in run(what_if, *given, "--topic", "T", "--tags", "a").out
