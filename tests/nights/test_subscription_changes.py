"""Subscription files over several nights: continued, corrected, late, and as snapshots."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from answers.facts import open_facts
from filtering.delivery.message_filter import delivers
from filtering.predicate import FALSE, to_json
from jobs import explain, nightly, register, replay, what_if
from jobs import subscriptions as subscriptions_job
from schemas import subscriptions
from schemas.delta.warehouse import Warehouse
from tests.broker_log import BrokerLog
from tests.nights.commands import differing, rows_of
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, after, event, sql


def test_a_changed_expression_changes_no_earlier_delivery(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    before = broker.received("cg")
    broker.grow()
    broker.night([sql(BEFORE, "cg", LOW), sql(after(10), "cg", HIGH)])
    assert before == [0, 1, 2, 3, 4]
    assert broker.received("cg") == [*before, 15]
    since = {row["queue_offset"]: row["subscription_from"] for row in rows_of(broker.folder / "w", "deliveries")}
    assert (since[4], since[15]) == (BEFORE, after(10))


def test_a_file_may_hold_only_what_is_new(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    broker.grow()
    broker.night([sql(after(10), "cg", HIGH)])
    assert broker.received("cg") == [0, 1, 2, 3, 4, 15]
    assert "There was nothing new" in broker.night([sql(after(10), "cg", HIGH)]).out


def test_what_lint_says_of_an_expression_is_kept_for_the_next_nights(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", "price"), sql(BEFORE, "right if all prices are integers", "price > 5")]
    note = "lint: subscriptions that look wrong whatever the messages are: 1"
    assert note in broker.night(events).out
    assert note in broker.night(events).out
    broker.grow()
    events.append(sql(after(10), "new", LOW))
    assert note in broker.night(events).out
    stored = {
        row["consumer_group"]: json.loads(row["findings"]) for row in rows_of(broker.folder / "w", "subscriptions")
    }
    assert [finding["code"] for finding in stored["cg"]] == ["bare-property"]
    assert stored["new"] == []


def test_what_an_older_mqsieve_compiled_is_compiled_again(
    broker: GrowingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(subscriptions, "compiled_by", lambda: "older")
        older.setattr(subscriptions, "to_json", lambda _: to_json([FALSE, FALSE]))
        broker.night([sql(BEFORE, "cg", LOW), sql(BEFORE, "other", HIGH)])
    assert FALSE not in map(delivers, open_facts(Warehouse.at(str(broker.folder / "w"))).in_force)
    broker.night([sql(BEFORE, "cg", LOW), sql(BEFORE, "other", HIGH)])
    stored = rows_of(broker.folder / "w", "subscriptions")
    assert [row["compiled_by"] for row in stored] == [subscriptions.compiled_by()] * 2
    assert "There was nothing new" in broker.night([sql(BEFORE, "cg", LOW), sql(BEFORE, "other", HIGH)]).out
    broker.grow()
    broker.night([sql(BEFORE, "cg", LOW), sql(BEFORE, "other", HIGH)])
    assert broker.received("other") == [5, 6, 7, 8, 9, 15]


def test_a_client_with_a_fast_clock_and_events_without_versions(broker: GrowingBroker) -> None:
    """A file that grows and a file of new events are numbered the same."""
    first, second = sql(BEFORE, "cg", LOW, sub_version=after(1_000)), sql(after(10), "cg", HIGH)
    for warehouse in ("grown", "new"):
        broker.night([first], warehouse=warehouse)
    broker.grow()
    broker.night([first, second], warehouse="grown")
    broker.night([second], warehouse="new")
    assert broker.received("cg", "grown") == [0, 1, 2, 3, 4, 15]
    assert differing(broker.facts("grown"), broker.facts("new")) == []


def test_a_correction_at_the_time_of_the_last_message_of_a_night_repeats_it(broker: GrowingBroker) -> None:
    """HIGH matches message 9, the last one of the first night."""
    broker.night([sql(BEFORE, "cg", LOW)])
    last = broker.log.messages[9].stored_at
    broker.grow()
    broker.night([sql(BEFORE, "cg", LOW)])
    corrected = [sql(BEFORE, "cg", LOW), sql(last, "cg", HIGH)]
    assert f"add --redo-from {last} to repeat" in broker.night(corrected).error
    assert broker.night(corrected, "--redo-from", last).code == 0
    assert broker.received("cg") == [0, 1, 2, 3, 4, 9, 15]
    assert broker.night(corrected, warehouse="fresh").code == 0
    assert broker.received("cg", "fresh") == broker.received("cg")


def test_a_late_event_is_refused_until_the_user_says_from_when(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    broker.grow()
    broker.night([sql(BEFORE, "cg", LOW)])
    facts = broker.facts()
    corrected = [sql(BEFORE, "cg", LOW), sql(after(6), "cg", HIGH)]
    code, _, error = broker.night(corrected)
    assert (code, f"add --redo-from {after(6)} to repeat" in error, error.count("\n")) == (2, True, 1)
    assert broker.facts() == facts
    assert broker.night(corrected, "--redo-from", after(6)).code == 0
    assert broker.received("cg") == [0, 1, 2, 3, 4, 6, 7, 8, 9, 15]
    assert broker.night(corrected, warehouse="fresh").code == 0
    assert broker.received("cg", "fresh") == broker.received("cg")
    assert "There was nothing new" in broker.night(corrected).out


def client(at: int, name: str, tag: str, version: int, **more: str) -> str:
    subscription = {"topic": "T", "type": "TAG", "expression": tag, "sub_version": version}
    return event(at, "heartbeat", "cg", client_id=name, subscriptions=[subscription], **more)


def test_a_late_client_with_other_tags_is_refused_until_the_user_says_from_when(broker: GrowingBroker) -> None:
    """The subscription in force stays, but the client drops what its own tags do not have."""
    broker.log.append(4, queue_id=1, TAGS="a")
    broker.grow()
    broker.log.write_queues(broker.folder / "store")
    first = client(BEFORE, "c1", "a", 10, consume_from="first")
    broker.night([first])
    assert broker.received("cg") == [0, 1, 2, 3]
    late = client(BEFORE + 1, "c2", "b", 5)
    code, _, error = broker.night([first, late])
    assert (code, f"--redo-from {BEFORE + 1} " in error) == (2, True)
    assert broker.night([first, late], "--redo-from", BEFORE + 1).code == 0
    assert {row["outcome"] for row in rows_of(broker.folder / "w", "deliveries")} == {"DROPPED_BY_CLIENT"}


def test_a_late_client_with_the_same_tags_changes_nothing(broker: GrowingBroker) -> None:
    first = client(BEFORE, "c1", "a", 10)
    broker.night([first])
    assert broker.night([first, client(after(2), "c2", "a", 10)]).code == 0


def test_a_client_with_sql92_checks_none_of_the_tags_in_force(broker: GrowingBroker) -> None:
    """The broker filters by the other client's tag, and BB has the hash of Aa. Source: PullAPIWrapper."""
    broker.log.append(1, TAGS="Aa").append(1, TAGS="BB").append(1, TAGS="C")
    broker.grow()
    broker.log.write_queues(broker.folder / "store")
    own = {"topic": "T", "type": "SQL92", "expression": "n >= 0", "sub_version": 5}
    reads = event(BEFORE, "heartbeat", "cg", client_id="c1", subscriptions=[own], consume_from="first")
    broker.night([reads, client(BEFORE + 1, "c2", "Aa", 10)])
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["queue_offset"] >= 10]
    assert [(row["queue_offset"], row["outcome"]) for row in rows] == [(10, "DELIVERED"), (11, "DELIVERED")]
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset", "11")
    assert "DELIVERED" in broker.run(explain, *given, "--json").out
    assert broker.passes_audits()


def test_another_first_start_is_refused_until_the_user_says_from_when(broker: GrowingBroker) -> None:
    first = sql(BEFORE, "cg", LOW)
    broker.night([first])
    code, _, error = broker.night([first.replace('"first"', '"last"')])
    assert (code, f"--redo-from {BEFORE} " in error) == (2, True)


def test_a_redo_gives_what_the_nights_would_have_given(broker: GrowingBroker) -> None:
    corrected = [sql(BEFORE, "cg", LOW), sql(after(6), "cg", HIGH), sql(after(12), "cg_other", LOW)]
    for night in range(3):
        broker.night([sql(BEFORE, "cg", LOW)])
        broker.night(
            [line for line in corrected if json.loads(line)["at"] <= after(10 * night + 10)], warehouse="right"
        )
        if night < 2:
            broker.grow()
    assert broker.facts() != broker.facts("right")
    broker.night(corrected, "--redo-from", 0)
    tables, expected = broker.facts(), broker.facts("right")
    assert differing(tables, expected) == []


def test_an_event_that_is_gone_is_a_correction(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW), sql(BEFORE, "cg_gone", HIGH)])
    code, _, error = broker.night([sql(BEFORE, "cg", LOW)])
    assert (code, f"--redo-from {BEFORE}" in error) == (2, True)
    assert broker.night([sql(BEFORE, "cg", LOW)], "--redo-from", BEFORE).code == 0
    assert broker.received("cg_gone") == []


def test_changed_switches_are_refused_until_the_user_says_since_when(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW)]
    broker.night(events)
    conf = broker.folder / "broker.conf"
    conf.write_text(conf.read_text() + "expectConsumerNumUseFilter=64\n")
    code, _, error = broker.night(events)
    assert (code, "expectConsumerNumUseFilter was 32 and is 64" in error, "--redo-from 0" in error) == (2, True, True)
    assert broker.night(events, "--redo-from", 0).code == 0
    assert broker.night(events, warehouse="fresh").code == 0
    assert differing(broker.facts(), broker.facts("fresh")) == []


def test_switches_that_changed_after_the_last_night_leave_it_alone(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW)]
    broker.night(events)
    before = list(rows_of(broker.folder / "w", "consumequeue"))
    conf = broker.folder / "broker.conf"
    conf.write_text(conf.read_text().replace("enableCalcFilterBitMap=true", "enableCalcFilterBitMap=false"))
    broker.grow()
    _, _, error = broker.night(events)
    since = error.split("--redo-from ")[2].split(" ")[0]
    assert broker.night(events, "--redo-from", since).code == 0
    entries = sorted(rows_of(broker.folder / "w", "consumequeue"), key=lambda row: row["queue_offset"])
    assert entries[:10] == sorted(before, key=lambda row: row["queue_offset"])
    assert all(row["filter_bit_map"] for row in entries[:10])
    assert not any(row["filter_bit_map"] for row in entries[10:])


YAML = "- {group: cg, topic: T, sql: \"n IN ('0','1','2','3','4')\", consume_from: first}\n"


def test_a_snapshot_without_times_holds_from_the_end_of_the_night_before(broker: GrowingBroker) -> None:
    broker.night(YAML, name="s.yaml")
    assert broker.received("cg") == [0, 1, 2, 3, 4]
    broker.grow()
    broker.night(YAML.replace("'3','4'", "'3','15'"), name="s.yaml")
    assert broker.received("cg") == [0, 1, 2, 3, 4, 15]
    broker.grow()
    broker.night(YAML.replace("cg", "cg_new"), name="s.yaml")
    assert broker.received("cg") == [0, 1, 2, 3, 4, 15]
    rows = [row for row in rows_of(broker.folder / "w", "current_offsets") if row["consumer_group"] == "cg"]
    assert [(row["decided_to"], row["queue_end"]) for row in rows] == [(20, 30)], "the group has left"


def test_a_snapshot_after_a_client_with_a_fast_clock(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW, sub_version=after(1_000))])
    broker.grow()
    broker.night(YAML.replace("'3','4'", "'3','15'"), name="s.yaml")
    assert broker.received("cg") == [0, 1, 2, 3, 4, 15]


def test_a_snapshot_with_a_bad_entry_lets_nobody_leave(broker: GrowingBroker) -> None:
    broker.night(YAML + YAML.replace("cg", "cg_b"), name="s.yaml")
    broker.grow()
    bad = YAML + "- {group: cg_b, topic: T, sqll: \"n = '12'\"}\n"
    out = broker.night(bad, name="s.yaml").out
    assert "quarantined: s.yaml, line 2" in out
    rows = {row["consumer_group"]: row for row in rows_of(broker.folder / "w", "current_offsets")}
    assert rows["cg_b"]["decided_to"] == 20
    assert "quarantined" not in broker.night(YAML + YAML.replace("cg", "cg_b"), name="s.yaml").out


@pytest.mark.parametrize("empty", ['{"filterDataByTopic": {}}', "", "[]"])
def test_a_file_without_subscriptions_leaves_a_snapshot_a_snapshot(broker: GrowingBroker, empty: str) -> None:
    """A broker without SQL92 filters has such a consumerFilter.json."""
    (broker.folder / "empty.json").write_text(empty)
    more = ("--subscriptions", broker.folder / "empty.json")
    assert broker.night(YAML, *more, name="s.yaml").code == 0
    broker.grow()
    assert broker.night(YAML.replace("'3','4'", "'3','15'"), *more, name="s.yaml").code == 0
    assert broker.received("cg") == [0, 1, 2, 3, 4, 15]


@pytest.mark.parametrize("name", ["events.jsonl", "20261122"])
def test_a_bad_line_says_nothing_of_the_log(broker: GrowingBroker, name: str) -> None:
    out = broker.night([sql(BEFORE, "cg", LOW), "garbage"], name=name).out
    assert (f"quarantined: {name}, line 2" in out, "the broker itself" in out) == (True, False)


def write_own_list(broker: GrowingBroker, expression: str) -> None:
    """Writes the store's consumerFilter.json, with the group cg."""
    filter_data = {
        "consumerGroup": "cg", "topic": "T", "expression": expression, "expressionType": "SQL92", "bornTime": BEFORE,
        "deadTime": 0, "clientVersion": BEFORE,
    }  # fmt: skip
    config = broker.folder / "store" / "config"
    config.mkdir(exist_ok=True)
    document = {"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": {"cg": filter_data}}}}
    (config / "consumerFilter.json").write_text(json.dumps(document))


def without_subscriptions(broker: GrowingBroker) -> list[object]:
    """The options of a night without --subscriptions."""
    given = ["--store", broker.folder / "store", "--warehouse", broker.folder / "w"]
    return [*given, "--broker-config", broker.folder / "broker.conf"]


def test_the_stores_own_consumer_filter_is_read(broker: GrowingBroker) -> None:
    write_own_list(broker, LOW)
    broker.commit(cg=10, cg_unknown=3, TOOLS_CONSUMER=1)
    given = without_subscriptions(broker)
    code, out, _ = broker.run(nightly, *given)
    assert (code, broker.received("cg")) == (0, [0, 1, 2, 3, 4])
    assert "subscriptions: the store's own list of SQL92 subscriptions, 1 began or changed, 0 ended" in out
    assert "consumerOffset.json without a known subscription: 1;" in out
    assert "cg_unknown" in out
    assert broker.run(nightly, *given, "--strict").code == 3
    asked = broker.run(
        explain, "--group", "cg_unknown", *("--topic", "T", "--queue", "0", "--offset", "0"), *given[2:4]
    )
    assert "cg_unknown has no subscription in" in asked.error
    assert "but committed offsets: give a night what it subscribes to and since when (at:)" in asked.error


@pytest.mark.parametrize("job", [nightly, register])
def test_the_stores_own_consumer_filter_is_not_read_after_subscriptions_of_the_user(
    broker: GrowingBroker, job: Any
) -> None:
    """A night whose --subscriptions was forgotten goes on with the groups that mqsieve knows."""
    write_own_list(broker, HIGH)
    (broker.folder / "s.yaml").write_text("- {group: cg, topic: T, tag: '*', consume_from: first}\n")
    given = without_subscriptions(broker) if job is nightly else without_subscriptions(broker)[2:]
    out = broker.run(job, *given, "--subscriptions", broker.folder / "s.yaml").out
    assert "subscriptions: s.yaml, 1 began or changed, 0 ended" in out
    broker.grow()
    given = [*without_subscriptions(broker), "--redo-from", "0"]
    assert "subscriptions: no --subscriptions: those of earlier runs" in broker.run(nightly, *given).out
    assert broker.received("cg") == list(range(20))
    broker.log = BrokerLog().append(10, body=b"another log")
    broker.log.write(broker.folder / "store")
    assert broker.run(nightly, *without_subscriptions(broker), "--new-epoch").code == 0
    (row,) = rows_of(broker.folder / "w", "subscriptions", "expression")
    assert row["expression"] == HIGH


def test_a_snapshot_without_most_groups_says_so(broker: GrowingBroker) -> None:
    lines = [sql(BEFORE, f"cg_{number}", LOW) for number in range(3)]
    assert "subscriptions: events.jsonl, 3 new events" in broker.night(lines).out
    broker.grow()
    out = broker.night("- {group: cg_1, topic: T, tag: a}", name="s.yaml").out
    assert "subscriptions: s.yaml, 1 began or changed, 2 ended" in out
    assert (
        "subscriptions: s.yaml, without changes" in broker.night("- {group: cg_1, topic: T, tag: a}", name="s.yaml").out
    )


def test_a_snapshot_with_a_group_twice_still_says_who_left(broker: GrowingBroker) -> None:
    broker.night("- {group: cg_1, topic: T, tag: a}\n- {group: cg_2, topic: T, tag: a}\n", name="s.yaml")
    broker.grow()
    out = broker.night("- {group: cg_1, topic: T, tag: a}\n- {group: cg_1, topic: T, tag: '*'}\n", name="s.yaml").out
    assert "subscriptions: s.yaml, 1 began or changed, 1 ended" in out
    assert "quarantined: s.yaml, line 1: line 2 has the same group and topic, and counts" in out


@pytest.mark.parametrize("first", ["- {group: cg, topic: T, tag: '*', consume_from: first}", ""])
def test_a_cut_of_the_log_does_not_change_where_subscriptions_come_from(broker: GrowingBroker, first: str) -> None:
    """Without subscriptions of the user, the store's own list is read before and after the cut."""
    write_own_list(broker, LOW)
    (broker.folder / "s.yaml").write_text(first)
    more = ("--subscriptions", broker.folder / "s.yaml")
    assert broker.run(nightly, *without_subscriptions(broker), *(more if first else ())).code == 0
    broker.log = BrokerLog().append(4).append(8, body=b"other")
    broker.log.write(broker.folder / "store")
    for _ in range(2):
        assert broker.run(nightly, *without_subscriptions(broker)).code == 0
        broker.grow()
    assert broker.received("cg") == (list(range(22)) if first else [0, 1, 2, 3, 4])
    facts = open_facts(Warehouse.at(str(broker.folder / "w")))
    assert facts.history_is_incomplete


def test_withdrawn_events_are_counted(broker: GrowingBroker) -> None:
    lines = [sql(BEFORE, f"cg_{number}", LOW) for number in range(3)]
    broker.night(lines)
    assert "subscriptions: events.jsonl, 2 withdrawn events" in broker.night(lines[:1], "--redo-from", 0).out
    assert "subscriptions: empty.yaml, without an entry" in broker.night("", name="empty.yaml").out


def test_lines_that_cannot_be_read_any_more_are_named_before_a_redo(broker: GrowingBroker) -> None:
    lines = [sql(BEFORE, "cg_1", LOW), sql(BEFORE, "cg_2", LOW)]
    broker.night(lines)
    error = broker.night([lines[0].replace('"expression"', '"expresion"'), *lines[1:]]).error
    assert (
        "(1 entry could not be read: events.jsonl, line 1: expresion is not known; did you mean expression?)" in error
    )


def test_a_first_night_without_any_subscriptions(broker: GrowingBroker) -> None:
    out = broker.run(nightly, *without_subscriptions(broker)).out
    assert "subscriptions: none: no run had --subscriptions" in out


def test_a_replay_says_what_it_could_not_read(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    file = broker.folder / "s.yaml"
    given = ("--warehouse", broker.folder / "w", "--into", broker.folder / "replay", "--subscriptions", file)
    file.write_text("- {group: cg, topic: T, tag: '*'}\n- {group: cg_2, topic: T}\n")
    ended = broker.run(replay, *given)
    assert ended.out.startswith("rejected: s.yaml, line 2: a subscription needs either tag: or sql:, and not both\n")
    assert "\n10 deliveries; " in ended.out
    file.write_text("")
    ended = broker.run(replay, *given)
    assert (ended.code, ended.error) == (2, f"mqsieve: --subscriptions: there is no subscription in {file}\n")


def test_a_topic_that_no_message_has(broker: GrowingBroker) -> None:
    lines = [sql(BEFORE, "cg", LOW), sql(BEFORE, "cg_typo", LOW).replace('"T"', '"Tt"')]
    code, out, _ = broker.night(lines)
    assert (code, "Tt has no message; groups that subscribe to it: 1, such as cg_typo" in out) == (0, True)
    assert broker.night(lines, "--strict").code == 3


def test_a_future_event_that_is_withdrawn_is_gone(broker: GrowingBroker) -> None:
    first, future = sql(BEFORE, "cg", LOW), event(after(1_000), "unregister", "cg")
    broker.night([first, future])
    assert broker.night([first]).code == 0
    assert [row["number"] for row in rows_of(broker.folder / "w", "subscription_events")] == [0]
    assert "There was nothing new" in broker.night([first]).out


def test_an_event_of_the_longest_line_can_be_read_back(broker: GrowingBroker) -> None:
    long = sql(BEFORE, "cg", "n = '1'").replace("n = '1'", "n = '1' OR n = '" + "x" * ((1 << 20) - 200) + "'")
    assert broker.night([long]).code == 0
    broker.grow()
    assert broker.night([long]).code == 0


def test_snapshots_of_quiet_nights_are_compared_with_each_other(broker: GrowingBroker) -> None:
    """Without new messages, the end of the last night stays."""
    low, high = (f'- {{group: cg, topic: T, sql: "{text}"}}\n' for text in (LOW, HIGH))
    other = "- {group: other, topic: T, tag: a}\n"
    for snapshot in (low + other, other, high + other):
        assert broker.night(snapshot).code == 0
    assert "There was nothing new" in broker.night(high + other).out
    broker.grow()
    broker.night(high + other)
    assert broker.received("cg") == [0, 1, 2, 3, 4, 15]


def test_what_was_sent_with_pulls_ends_when_the_group_leaves(broker: GrowingBroker) -> None:
    """A DefaultLitePullConsumer registers first, and then sends the same subscription with its pulls."""
    events = [
        sql(BEFORE, "cg", LOW),
        event(BEFORE + 5, "pull_subscription", "cg", type="SQL92", expression=LOW),
        event(after(3), "unregister", "cg"),
    ]
    broker.night(events)
    assert broker.received("cg") == [0, 1, 2]
    broker.grow()
    events += [
        sql(after(12), "cg", HIGH),
        event(after(12) + 5, "pull_subscription", "cg", type="SQL92", expression=HIGH),
    ]
    broker.night(events)
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9, 15]


def test_a_group_whose_push_consumers_follow_lite_pull_consumers(broker: GrowingBroker) -> None:
    events = [
        event(BEFORE, "pull_subscription", "cg", type="SQL92", expression=LOW),
        event(after(3), "unregister", "cg"),
        sql(after(4), "cg", HIGH),
    ]
    broker.night(events)
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(("old", "new"), [("*", "b"), ("b", "*"), ("a", "b")])
def test_a_message_that_was_stored_just_before_its_tags_changed_may_not_have_been_pulled(
    broker: GrowingBroker, old: str, new: str
) -> None:
    """Under load, a real group pulled messages up to 187 ms after they were stored, by the new tags."""
    tags = [event(at, "register", "cg", type="TAG", expression=each) for at, each in ((BEFORE, old), (after(15), new))]
    broker.log.append(10, TAGS="b")
    broker.log.write(broker.folder / "store")
    broker.night(tags)
    windows = [row for row in rows_of(broker.folder / "w", "pull_windows") if row["kind"] == "uncertain"]
    before = [row for row in windows if row["stored_to"] == after(15)]
    assert [row["stored_from"] for row in before] == [after(15) - 1000]


@pytest.mark.parametrize(
    ("old", "new", "at", "uncertain"),
    [(HIGH, LOW, after(2), [1, 2, 3, 4, 5]), (LOW, HIGH, after(3), [2, 3]), (LOW, LOW, after(3), [])],
)
def test_a_held_pull_keeps_the_subscription_that_it_brought(
    broker: GrowingBroker, old: str, new: str, at: int, uncertain: list[int]
) -> None:
    """Real lite pull consumers, and push consumers with postSubscriptionWhenPull, did not get messages 2, 3 and 4.

    Message 5 matches the old expression: it ends the pull, and they got it. The message before the change may not have
    been pulled yet.
    """
    lines = [
        event(at, "pull_subscription", "cg", type="SQL92", expression=each) for at, each in ((BEFORE, old), (at, new))
    ]
    broker.night(lines)
    stats = rows_of(broker.folder / "w", "delivery_stats")
    assert [row["uncertain"] for row in stats if row["consumer_group"] == "cg" and row["scanned"]] == [len(uncertain)]
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset")
    explained = [json.loads(broker.run(explain, *place, offset, "--json").out)["uncertain"] for offset in range(10)]
    assert [offset for offset, why in enumerate(explained) if why] == uncertain


@pytest.mark.parametrize(("type", "new"), [("SQL92", "TAGS IN ('b', 'c')"), ("TAG", "b || c")])
def test_a_message_with_an_old_tag_ends_a_held_pull_only_if_the_new_subscription_finds_something(
    broker: GrowingBroker, type: str, new: str
) -> None:
    """A real client dropped the message after one with an old tag that its new subscription did not match."""
    for tag in "xbabcb":
        broker.log.append(1, TAGS=tag)
    broker.log.write(broker.folder / "store")
    tags = event(BEFORE, "register", "cg", type="TAG", expression="a || c")
    broker.night([tags, event(after(11), "register", "cg", type=type, expression=new)])
    stats = rows_of(broker.folder / "w", "delivery_stats")
    assert sum(row["uncertain"] for row in stats) == 2
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset")
    explained = [json.loads(broker.run(explain, *place, offset, "--json").out) for offset in range(10, 16)]
    assert [each["outcome"] == "DELIVERED" for each in explained] == [False, True, False, True, True, True]
    assert [bool(each["uncertain"]) for each in explained] == [False, True, False, True, False, False]


def test_a_list_from_a_warehouse_is_what_is_in_force(broker: GrowingBroker) -> None:
    """A list to begin with, for people and pull requests. Groups that are away are named, not listed."""
    lines = [
        sql(BEFORE, "cg", LOW), sql(after(3), "cg", HIGH), event(BEFORE, "register", "cg_tag", expression="a || b"),
        event(BEFORE, "register", "cg_time", consume_from=BEFORE, expression="*"), sql(BEFORE, "cg_away", HIGH),
        event(after(5), "unregister", "cg_away"),
    ]  # fmt: skip
    broker.night(lines)
    written = broker.run(subscriptions_job, "--warehouse", broker.folder / "w")
    assert (written.code, written.error) == (0, "3 subscriptions of 3 groups; left out, as they are away: cg_away\n")
    assert yaml.safe_load(written.out) == [
        {"group": "cg", "topic": "T", "sql": HIGH, "consume_from": "first"},
        {"group": "cg_tag", "topic": "T", "tag": "a || b"},
        {"group": "cg_time", "topic": "T", "tag": "*", "consume_from": BEFORE},
    ]
    (broker.folder / "list.yaml").write_text(written.out)
    asked = broker.run(what_if, "--warehouse", broker.folder / "w", "--changes", broker.folder / "list.yaml")
    assert asked.out == "no subscription differs from what is in force\n"
    assert broker.run(subscriptions_job).error == "mqsieve: give either files, or --warehouse with a warehouse\n"


def test_a_list_without_retry_topics_ends_none_of_a_group_that_stays(broker: GrowingBroker) -> None:
    """Clients subscribe to them by themselves. So a list to edit has none of them, as one that is typed has not."""
    retried = [
        event(BEFORE, "register", group, topic=f"%RETRY%{group}", expression="*", consume_from="first")
        for group in ("cg", "cg_b")
    ]
    broker.night([sql(BEFORE, "cg", LOW), sql(BEFORE, "cg_b", LOW), *retried])
    written = broker.run(subscriptions_job, "--warehouse", broker.folder / "w")
    assert [entry["topic"] for entry in yaml.safe_load(written.out)] == ["T", "T"]
    assert written.error == "2 subscriptions of 2 groups\n"
    edited = written.out.replace("'4'", "'15'").partition("- group: cg_b")[0]
    for group in ("cg", "cg_b"):
        broker.log.append(1, topic=f"%RETRY%{group}")
    broker.grow()
    ended = broker.night(edited, name="list.yaml")
    assert "list.yaml, 1 began or changed, 2 ended" in ended.out
    last = max(row["run"] for row in rows_of(broker.folder / "w", "run_ledger"))
    new = [row for row in rows_of(broker.folder / "w", "deliveries") if row["run"] == last]
    assert {(row["consumer_group"], row["topic"]) for row in new} == {("cg", "T"), ("cg", "%RETRY%cg")}


@pytest.mark.parametrize("later", [False, True])
def test_a_listed_group_reads_its_retry_topic_where_its_offsets_show_it(broker: GrowingBroker, later: bool) -> None:
    """Clients that push commit an offset of it; clients that pull by themselves do not read it."""
    listed = "\n".join(f"- {{group: {group}, topic: T, tag: a}}" for group in ("push", "lite"))
    offsets = {"T@push": {"0": 0}, "T@lite": {"0": 0}, "%RETRY%push@push": {"0": 0}}
    config = broker.folder / "store" / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    if later:
        broker.night("- {group: other, topic: T, tag: a}", name="list.yaml")
    for group in ("push", "lite"):
        broker.log.append(2, topic=f"%RETRY%{group}").write(broker.folder / "store")
    (broker.folder / "new.yaml").write_text(listed)
    given = ("--store", broker.folder / "store", "--broker-config", broker.folder / "broker.conf")
    warehouse = ("--warehouse", broker.folder / "w")
    if later:
        asked = broker.run(what_if, *warehouse, "--changes", broker.folder / "new.yaml", "--json").out
        tried = {(each["consumer_group"], each["topic"]) for each in json.loads(asked)["changes"] if not each["ends"]}
        assert tried == {("push", "T"), ("lite", "T")}, "its retry topic has no message yet"
    assert broker.run(nightly, *given, *warehouse, "--subscriptions", broker.folder / "new.yaml").code == 0
    received = {
        (row["consumer_group"], row["topic"], row["queue_offset"]) for row in rows_of(broker.folder / "w", "deliveries")
    }
    assert received == {("push", "%RETRY%push", 0), ("push", "%RETRY%push", 1)}
    for _ in range(2):
        ended = broker.night(listed + "\n", name="new.yaml")
        assert "began or changed" not in ended.out


def test_a_list_with_times_tells_the_past_of_groups_that_the_store_does_not_list(broker: GrowingBroker) -> None:
    """The committed offset shows that the group was there; only a list with at: and --redo-from says what it got."""
    write_own_list(broker, LOW)
    broker.commit(cg=10, cg_tag=10)
    given = without_subscriptions(broker)
    ended = broker.run(nightly, *given)
    assert "cg_tag" in ended.out
    assert "give what they subscribed to with at: and --redo-from" in " ".join(ended.out.split())
    own = broker.folder / "store" / "config" / "consumerFilter.json"
    tags = broker.folder / "tags.yaml"
    tags.write_text("- {group: cg_tag, topic: T, tag: '*'}\n")
    lists = ("--subscriptions", own, "--subscriptions", tags)
    assert broker.run(nightly, *given, *lists).code == 0
    assert broker.received("cg_tag") == []
    asked = ("--topic", "T", "--queue", "0", "--offset", "3", "--group", "cg_tag", *given[2:4])
    out = broker.run(explain, *asked).out
    assert "the group had committed a later offset when its first known subscription began" in out
    assert "the group was there before, and what it subscribed to then is not known" in out
    broker.grow()
    broker.commit(cg=10, cg_tag=10)
    assert broker.run(nightly, *given, *lists).code == 0
    assert (
        "the group had committed a later offset when its first known subscription began"
        in broker.run(explain, *asked).out
    )
    tags.write_text("- {group: cg_tag, topic: T, tag: '*', at: 2001-01-01}\n")
    assert broker.run(nightly, *given, *lists, "--redo-from", 0).code == 0
    assert broker.received("cg_tag") == list(range(20))
    assert broker.received("cg")[:5] == [0, 1, 2, 3, 4]
