"""Stores of brokers of other versions, each with clients of that version, without an option for the version."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from filtering.sql92 import compile
from jobs import explain, lag, lint, nightly, replay, verify
from schemas.delta.warehouse import Warehouse
from tests.broker_log import BROKER_CONF
from tests.captures import capture, delivered_in_force, rows
from tests.nights.commands import Run, arguments, delivered, night, outcomes, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

TAKEN_FOR = {
    "v497": "4.x: consumerOffset.json has no dataVersion",
    "v497_plain": "4.x: consumerOffset.json has no dataVersion",
    "v500": "5.0 or 5.1, before 5.1.3: subscriptionGroup.json has no attributes",
    "v514": "5.1.3 or newer: subscriptionGroup.json has attributes",
    "v533": "5.1.3 or newer: subscriptionGroup.json has attributes",
    "small": "5.1.3 or newer: subscriptionGroup.json has attributes",
}


@pytest.mark.parametrize("name", TAKEN_FOR)
def test_every_group_gets_what_its_consumer_got_and_every_entry_is_the_brokers(
    name: str, run: Run, tmp_path: Path
) -> None:
    ended = run(nightly, *arguments(name, tmp_path / "w"))
    assert f"\n  RocketMQ taken for {TAKEN_FOR[name]}\n" in ended.out
    checked = run(verify, "--warehouse", tmp_path / "w", "--store", capture(name) / "store")
    assert (checked.code, "identical: every consume queue" in checked.out) == (0, True)
    assert run(replay, "--warehouse", tmp_path / "w", "--into", tmp_path / "replay").code == 0
    made = outcomes(Warehouse.at(str(tmp_path / "replay")))
    expected_rows = delivered_in_force(name)
    assert len(expected_rows) > 45
    for expected in expected_rows:
        got = made.get((expected["group"], expected["topic"]), {"DELIVERED": [], "DROPPED_BY_CLIENT": []})
        assert sorted(got["DELIVERED"]) == sorted(map(tuple, expected["client"])), expected["group"]


def nights_of_4_9_7(warehouse: Path, run: Run, *more: object, last: int = 4) -> None:
    broker = capture("v497_nights")
    for number in range(1, last + 1):
        folder = broker / f"night_{number}"
        events = folder / "subscription_events.jsonl"
        assert run(nightly, *night(warehouse, folder / "store", events, broker / "broker.conf", *more)).code == 0


def test_four_nights_of_4_9_7(run: Run, tmp_path: Path) -> None:
    nights_of_4_9_7(tmp_path / "w", run)
    live = Counter(
        (row["group"], row["topic"], row["queueId"], row["queueOffset"]) for row in rows("v497_nights", "live")
    )
    deliveries = delivered(tmp_path / "w")
    assert sum(live.values()) > 11_000
    wrong: Counter[str] = Counter()
    for key, count in ((deliveries - live) + (live - deliveries)).items():
        wrong[key[0]] += count
    assert wrong.pop("cg_split_tags") > 0
    assert wrong == {"cg_sql_change_rush": 3, "cg_tag_change_rush": 7}, "what events do not decide"
    last = capture("v497_nights") / "night_4" / "store"
    assert run(verify, "--warehouse", tmp_path / "w", "--store", last).code == 0


def pending(run: Run, warehouse: Path, group: str) -> int:
    ended = run(lag, "--warehouse", warehouse, "--group", group, "--json")
    return sum(json.loads(line)["would_get"] or 0 for line in ended.out.splitlines())


def test_a_committed_offset_that_was_set_back_on_4_9_7_leaves_its_messages_pending(run: Run, tmp_path: Path) -> None:
    broker = capture("v497_nights")
    shutil.copytree(broker / "night_3", tmp_path / "night_3")
    file = tmp_path / "night_3" / "store" / "config" / "consumerOffset.json"
    text = file.read_text("utf-8")
    committed = re.search(r'"OrderEvents@cg_all_orders":\{0:(\d+)', text)
    assert committed is not None
    assert int(committed[1]) > 120
    file.write_text(text[: committed.start(1)] + "120" + text[committed.end(1) :], "utf-8")
    store, events = tmp_path / "night_3" / "store", tmp_path / "night_3" / "subscription_events.jsonl"
    for name, from_store in (("as it was", broker / "night_3" / "store"), ("set back", store)):
        ended = run(nightly, *night(tmp_path / name, from_store, events, broker / "broker.conf"))
        slow = [line.rsplit(": ", 1) for line in ended.out.splitlines() if "online groups that do not keep up" in line]
        assert [groups for _, groups in slow] == ["cg_all_orders on OrderEvents"] * (name == "set back"), ended.out
    assert pending(run, tmp_path / "as it was", "cg_all_orders") == 0
    queue_offsets = {
        row["queue_offset"]
        for row in rows_of(tmp_path / "set back", "deliveries")
        if (row["consumer_group"], row["topic"], row["queue_id"]) == ("cg_all_orders", "OrderEvents", 0)
    }
    assert max(queue_offsets) == 119
    assert pending(run, tmp_path / "set back", "cg_all_orders") > 0


MEANS_OTHER_THINGS = "NOT n CONTAINS '1'"


def test_an_upgrade_between_two_nights_changes_nothing_earlier(broker: GrowingBroker, run: Run) -> None:
    events = [sql(BEFORE, "cg", MEANS_OTHER_THINGS)]
    broker.log.append(10)
    broker.log.write(broker.folder / "store")
    assert broker.night(events, "--rocketmq-version", "4.9.7").code == 0
    first = list(range(len(broker.log.messages)))
    assert broker.received("cg") == first
    broker.grow()
    ended = broker.night(events, "--rocketmq-version", "5.5.0")
    assert "RocketMQ 5.5.0 since " in ended.out
    assert ", 4.9.7 before. What earlier nights decided stays as it is" in ended.out
    assert broker.received("cg") == first  # NOT n is FALSE, and FALSE CONTAINS '1' is FALSE.
    place = "--topic", "T", "--queue", 0, "--group", "cg", "--warehouse", broker.folder / "w"
    assert "delivered" in run(explain, *place, "--offset", 3).out.splitlines()[0]
    assert "not delivered" in run(explain, *place, "--offset", len(first) + 1).out.splitlines()[0]
    assert broker.passes_audits()
    events.append(sql(after(len(broker.log.messages)), "new", MEANS_OTHER_THINGS))
    assert broker.night(events).code == 0
    stored = {(row["consumer_group"], row["predicate"]) for row in rows_of(broker.folder / "w", "subscriptions")}
    before, now = (compile(MEANS_OTHER_THINGS, version).spark_predicate() for version in ("4.9.7", "5.5.0"))
    assert stored == {("cg", before), ("cg", now), ("new", now)}
    repeated = broker.night(events, "--redo-from", 0)
    assert repeated.code == 0
    assert broker.received("cg") == first
    assert broker.passes_audits()


def test_a_version_that_was_only_assumed_is_corrected_by_repeating_nights(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", MEANS_OTHER_THINGS)]
    for _ in range(2):
        ended = broker.night(events)
        assert "RocketMQ taken for 5.5.0: nothing shows the version" in ended.out
        assert broker.received("cg") == []
        broker.grow()
    ended = broker.night(events, "--rocketmq-version", "4.9.7", "--redo-from", 0)
    assert ended.code == 0
    assert broker.received("cg") == list(range(len(broker.log.messages)))
    assert broker.passes_audits()


def test_a_given_version_that_the_store_contradicts_is_said(broker: GrowingBroker) -> None:
    broker.commit(None, cg=3)
    ended = broker.night([sql(BEFORE, "cg", "n = '1'")], "--rocketmq-version", "5.5.0")
    assert "RocketMQ 5.5.0 was given, but the store looks like that of 4.x: consumerOffset.json" in ended.out
    ended = broker.run(nightly, "--store", "x", "--warehouse", "w", "--rocketmq-version", "five")
    assert (ended.code, "'five' is not a version of RocketMQ, such as 4.9.7" in ended.error) == (2, True)


def test_a_broker_log_beside_the_store_shows_the_version(broker: GrowingBroker) -> None:
    broker.commit(None, cg=3)
    log = broker.folder / "store" / "logs" / "rocketmqlogs" / "broker.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-11-27 14:09:40 INFO main - rocketmqHome=/home/rocketmq/rocketmq-4.5.1\n", "utf-8")
    (broker.folder / "broker.conf").write_text(f"{BROKER_CONF}mapedFileSizeConsumeQueue=40\n", "utf-8")
    ended = broker.night([sql(BEFORE, "cg", MEANS_OTHER_THINGS)])
    assert "RocketMQ taken for 4.5.1: broker.log prints its folder, /home/rocketmq/rocketmq-4.5.1\n" in ended.out
    assert "ignores" not in ended.out
    assert broker.received("cg") == list(range(len(broker.log.messages)))


def test_lint_says_how_words_are_read_where_nothing_shows_the_version(broker: GrowingBroker, run: Run) -> None:
    events = [sql(BEFORE, "cg", "n CONTAINS '1' OR startswith = 5"), sql(BEFORE, "other", "n = 'CONTAINS'")]
    assert broker.night(events).code == 0

    def notes() -> dict[str, str]:
        findings = json.loads(run(lint, "--warehouse", broker.folder / "w", "--json").out)["findings"]
        return {each["consumer_group"]: each["text"] for each in findings if each["code"] == "assumed-version"}

    assert notes() == {
        "cg": "CONTAINS, STARTSWITH read as operators, as a broker of 5.5.0 does: operators since 5.1.3, names before. "
        "Nothing shows the version: give --rocketmq-version"
    }
    broker.grow()
    assert broker.night(events, "--rocketmq-version", "5.5.0").code == 0
    assert notes() == {}


@pytest.mark.parametrize(("version", "expected"), [("5.1.4", 9), ("5.2.0", 5)])
def test_a_reset_by_clients_is_uncertain_if_the_group_leaves_before_it(
    broker: GrowingBroker, version: str, expected: int
) -> None:
    """Clients before 5.2.0 reset the offsets themselves, 10 to 20 s after the command.

    Of any version, the last five messages may not have been committed.
    """
    events = [
        sql(BEFORE, "cg", "n IS NOT NULL"),
        event(after(6), "reset_offset", "cg", queue_id=0, offset=2),
        event(after(8), "unregister", "cg"),
    ]
    assert broker.night(events, "--rocketmq-version", version).code == 0
    assert broker.received("cg") == sorted([*range(8), *range(2, 6)])
    assert uncertain(broker, "cg") == expected
    assert ("the clients of an older broker reset offsets" in explained(broker, "cg", 2)) is (version == "5.1.4")
    assert "the clients of an older broker reset offsets" not in explained(broker, "cg", 1)
    assert broker.passes_audits()


def test_the_version_of_each_of_several_brokers(broker: GrowingBroker, run: Run) -> None:
    (broker.folder / "events.jsonl").write_text(sql(BEFORE, "cg", MEANS_OTHER_THINGS), "utf-8")
    listed = [
        f"- {{name: {name}, store: store, config: broker.conf, subscriptions: events.jsonl, version: {version}}}"
        for name, version in (("old", "4.9.7"), ("new", "5.1.3"))
    ]
    (broker.folder / "brokers.yaml").write_text("\n".join(listed), "utf-8")
    ended = run(nightly, "--brokers", broker.folder / "brokers.yaml", "--warehouse", broker.folder / "w")
    assert ended.code == 0
    counts = Counter(row["broker_name"] for row in rows_of(broker.folder / "w", "deliveries"))
    assert counts == {"old": len(broker.log.messages)}


def test_lint_is_the_check_before_an_upgrade(broker: GrowingBroker, run: Run) -> None:
    events = [
        sql(BEFORE, "cg_gains", "n CONTAINS '1'"),
        sql(BEFORE, "cg_loses", "NOT n CONTAINS '1'"),
        sql(BEFORE, "cg_refused", "contains = 5"),
        sql(BEFORE, "cg_refused_now", "n NOT CONTAINS '1'"),
        sql(BEFORE, "cg_same", "n = '1'"),
    ]
    assert broker.night(events, "--rocketmq-version", "4.9.7").code == 0
    count = len(broker.log.messages)
    ones = sum("1" in message.properties["n"] for message in broker.log.messages)

    def changes(*version: str) -> dict[str, str]:
        ended = run(lint, "--warehouse", broker.folder / "w", "--json", *version)
        findings = json.loads(ended.out)["findings"]
        return {each["consumer_group"]: each["text"] for each in findings if each["code"] == "changes-on-upgrade"}

    texts = changes("--rocketmq-version", "5.5.0")
    assert texts == changes()
    assert sorted(texts) == ["cg_gains", "cg_loses", "cg_refused", "cg_refused_now"]
    assert texts["cg_gains"].endswith(f"the group would gain {ones} and lose 0")
    assert texts["cg_loses"].endswith(f"the group would gain 0 and lose {count}")
    assert texts["cg_refused"].startswith("RocketMQ 5.5.0 refuses it")
    assert texts["cg_refused_now"].endswith(f"the group would gain {count - ones} and lose 0")
    assert changes("--rocketmq-version", "5.1.1") == {}
    (broker.folder / "new.yaml").write_text("- {group: cg, topic: T, sql: \"a NOT CONTAINS 'x'\"}\n", "utf-8")
    alone = "--subscriptions", broker.folder / "new.yaml", "--fail-on", "error", "--rocketmq-version"
    assert [run(lint, *alone, version).code for version in ("5.1.1", "5.1.3")] == [3, 0]


@pytest.mark.parametrize(("version", "has_metric"), [("5.0.0", False), ("5.1.0", True)])
def test_the_brokers_own_estimate_of_the_lag_where_it_has_one(
    broker: GrowingBroker, run: Run, version: str, has_metric: bool
) -> None:
    assert broker.night([sql(BEFORE, "cg", "n = '1'")], "--rocketmq-version", version).code == 0
    ended = run(lag, "--warehouse", broker.folder / "w", "--json")
    estimates = [json.loads(line)["broker_estimate"] for line in ended.out.splitlines()]
    assert estimates
    assert (None not in estimates) is has_metric


def uncertain(broker: GrowingBroker, group: str) -> int:
    stats = rows_of(broker.folder / "w", "delivery_stats", "consumer_group", "uncertain")
    return sum(row["uncertain"] for row in stats if row["consumer_group"] == group)


def explained(broker: GrowingBroker, group: str, offset: int) -> str:
    place = ("--topic", "T", "--queue", "0", "--offset", offset, "--group", group)
    return " ".join(broker.run(explain, "--warehouse", broker.folder / "w", *place).out.split())


def with_an_empty_body(broker: GrowingBroker) -> list[str]:
    """The message at offset 50 of 100 has no body. One group gets all, one some beside it, one not this one."""
    for number in range(10, 100):
        broker.log.append(body=b"" if number == 50 else b"body", even=str(number % 2 == 0), empty=str(number == 50))
    broker.log.append(40, queue_id=1)
    broker.log.write(broker.folder / "store")
    expressions = {"all": "n IS NOT NULL", "even": "even = 'True'", "full": "empty = 'False'"}
    return [sql(BEFORE, group, expression) for group, expression in expressions.items()]


@pytest.mark.parametrize(("version", "is_lost"), [("4.9.7", True), ("5.2.0", True), ("5.3.0", False), (None, False)])
def test_a_pull_with_an_empty_body_is_uncertain_for_older_clients(
    broker: GrowingBroker, version: str | None, is_lost: bool
) -> None:
    events = with_an_empty_body(broker)
    ended = broker.night(events, *(("--rocketmq-version", version) if version else ()))
    assert ended.code == 0
    expected = {"all": 63, "even": 45, "full": 0} if is_lost else {"all": 0, "even": 0, "full": 0}
    assert {group: uncertain(broker, group) for group in expected} == expected
    assert ("108 deliveries are uncertain" in ended.out) is is_lost
    assert {group: len(broker.received(group)) for group in expected} == {"all": 140, "even": 45, "full": 89}
    assert ("uncertain it has no body: a Java client up to 5.2.0" in explained(broker, "all", 50)) is is_lost
    for offset, is_near in ((18, False), (19, True), (81, True), (82, False)):
        beside = "offset 50, which may have been in the same pull, has no body" in explained(broker, "all", offset)
        assert beside is (is_near and is_lost), offset
    assert ("has no body" in explained(broker, "even", 98)) is is_lost
    assert "has no body" not in explained(broker, "full", 51)
    assert broker.passes_audits()


def test_an_empty_body_that_a_group_pulls_in_a_later_night_is_uncertain_then(broker: GrowingBroker) -> None:
    events = with_an_empty_body(broker)
    late = sql(broker.log.time + 500, "late", "n IS NOT NULL")
    assert broker.night(events, "--rocketmq-version", "5.1.4").code == 0
    broker.grow()
    assert broker.night([*events, late]).code == 0
    assert uncertain(broker, "late") == 63
    assert broker.passes_audits()
