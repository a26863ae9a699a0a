"""Which subscriptions and filters were in force, and when, compared with what a real broker held."""

from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from filtering.broker_config import BrokerConfig, read_properties
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import DAY
from schemas.subscription_files import parse_subscriptions
from tests.captures import UNDAMAGED, capture, rows
from tests.reference import matches


@cache
def captured_history(name: str) -> list[SubscriptionRow]:
    parsed = parse_subscriptions((capture(name) / "subscription_events.jsonl").read_text("utf-8"))
    assert not parsed.rejected
    return subscription_history(parsed.events, captured_config(name))


def captured_config(name: str) -> BrokerConfig:
    return read_properties((capture(name) / "broker.conf").read_text("latin-1")).config


def history(*events: SubscriptionEvent) -> list[SubscriptionRow]:
    return subscription_history(events, BrokerConfig())


def register(
    at: int, expression: str, version: int | None = None, type: str = "SQL92", **more: Any
) -> SubscriptionEvent:
    subscription: Any = {
        "topic": "OrderEvents",
        "expression": expression,
        "type": type,
        "version": at if version is None else version,
    }
    return SubscriptionEvent(at, more.pop("operation", Operation.REGISTER), "cg", (subscription,), **more)


def unregister(at: int, **more: Any) -> SubscriptionEvent:
    return SubscriptionEvent(at, Operation.UNREGISTER, "cg", **more)


@pytest.mark.parametrize("name", UNDAMAGED)
def test_the_last_state_is_what_the_broker_held_at_the_end(name: str) -> None:
    end = max(message["storeTimestamp"] for message in rows(name, "messages") if not message.get("blank"))
    end = max(end, *(event["at"] for event in rows(name, "subscription_events")))
    held = {
        (row.consumer_group, row.topic): row
        for row in captured_history(name)
        if row.valid_from <= end and (row.valid_to is None or row.valid_to > end)
    }
    recorded = rows(name, "subscriptions")
    assert held.keys() == {(row["group"], row["topic"]) for row in recorded}
    for row in recorded:
        ours = held[row["group"], row["topic"]]
        assert (ours.expression, ours.expression_type) == (row["expression"], row["type"])
        assert ours.sub_version == row["subVersion"]
        assert (list(ours.tags_set) if ours.tags_set is not None else None) == (
            row["tagsSet"] if row["tagsSet"] is None else sorted(row["tagsSet"])
        )
        assert (list(ours.code_set) if ours.code_set is not None else None) == (
            row["codeSet"] if row["codeSet"] is None else sorted(row["codeSet"])
        )
        assert ours.born_time == row["bornTime"]
        assert (ours.dead_time or 0) == (row["deadTime"] or 0)
        assert (ours.dead_time is not None) == bool(row["dead"])
        assert ours.registered == (row["consumer"] != "offline since half time")
        assert ours.sent_with_pull == row["postSubscriptionWhenPull"]
        bloom = row["bloom"]
        assert (ours.bit_pos, ours.bit_num) == ((tuple(bloom["bitPos"]), bloom["bitNum"]) if bloom else (None, None))


@pytest.mark.parametrize("name", ["small", "otherbloom", "plain"])
def test_the_filters_in_force_explain_every_bit_map(name: str) -> None:
    config = captured_config(name)
    by_topic: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
    for row in captured_history(name):
        if row.filter_expression is not None:
            by_topic[row.topic].append(row)
    entries = {entry["commitLogOffset"]: entry for entry in rows(name, "consumequeue")}
    for message in rows(name, "messages"):
        entry = entries.get(message["physicalOffset"])
        if entry is None:
            continue
        bits = 0
        in_force = [
            row
            for row in by_topic[message["topic"]]
            if row.valid_from <= message["storeTimestamp"]
            and (row.valid_to is None or message["storeTimestamp"] < row.valid_to)
        ]
        for row in in_force:
            if matches(row.filter_expression or "", message["properties"] or {}):
                for position in row.bit_pos or ():
                    bits |= 1 << position
        expected = bits.to_bytes(config.bloom_filter.m // 8, "little").hex() if in_force else None
        if config.enable_consume_queue_ext:
            assert entry["ext"]["bitMap"] == (expected if config.enable_calc_filter_bit_map else None), message


@pytest.mark.parametrize("name", UNDAMAGED)
def test_intervals_of_a_group_and_topic_follow_each_other(name: str) -> None:
    by_key = defaultdict(list)
    for row in captured_history(name):
        by_key[row.consumer_group, row.topic].append(row)
    for intervals in by_key.values():
        assert intervals[-1].valid_to is None
        for before, after in pairwise(intervals):
            assert before.valid_from < after.valid_from == before.valid_to


def test_a_changed_expression_is_born_again() -> None:
    first, second = history(register(1_000, "qty > 1"), register(2_000, "qty > 2"))
    assert (first.valid_from, first.valid_to, first.born_time) == (1_000, 2_000, 1_000)
    assert (second.valid_from, second.valid_to, second.born_time) == (2_000, None, 2_000)
    assert second.compiled.expression
    assert second.filter_expression == "qty > 2"


def test_a_filter_outlives_its_change_to_tags() -> None:
    _, row = history(register(1_000, "qty > 1"), register(2_000, "paid", type="TAG"))
    assert (row.expression, row.tags_set) == ("paid", ("paid",))
    assert (row.filter_expression, row.dead_time, row.compiled.expression) == ("qty > 1", None, None)


def test_a_dead_filter_stays_until_it_is_cleaned() -> None:
    alive, dead, cleaned = history(register(1_000, "qty > 1"), unregister(2_000))
    assert alive.registered
    assert (dead.valid_from, dead.valid_to, dead.dead_time) == (2_000, 2_000 + DAY, 2_000)
    assert not dead.registered
    assert dead.expression == "qty > 1", "so that reports can tell what it would get"
    assert (cleaned.valid_from, cleaned.valid_to, cleaned.bit_pos) == (2_000 + DAY, None, None)


def test_a_group_that_returns_in_time_is_not_born_again() -> None:
    *_, row = history(register(1_000, "qty > 1"), unregister(2_000), register(3_000, "qty > 1"))
    assert (row.valid_from, row.valid_to, row.born_time, row.dead_time) == (3_000, None, 1_000, None)
    *_, row = history(register(1_000, "qty > 1"), unregister(2_000), register(1_999 + DAY, "qty > 1"))
    assert row.born_time == 1_000
    *_, late = history(register(1_000, "qty > 1"), unregister(2_000), register(2_000 + DAY, "qty > 1"))
    assert late.born_time == 2_000 + DAY


def test_a_dead_filter_stays_if_its_age_can_never_reach_the_span() -> None:
    """The broker compares the age, now - deadTime, which stays below 2^63 - 1."""
    events = [register(1_000, "qty > 1"), unregister(2_000)]
    *_, dead = subscription_history(events, BrokerConfig(filter_data_clean_time_span=2**63 - 1))
    assert (dead.valid_from, dead.valid_to, dead.dead_time) == (2_000, None, 2_000)


def test_an_invalid_expression_is_kept_with_its_error() -> None:
    (row,) = history(register(1_000, "qty >"))
    assert row.registered
    assert row.compile_error
    assert row.filter_expression is None
    (row,) = history(register(1_000, "||", type="TAG"))
    assert row.compile_error
    assert "||" in row.compile_error


def test_a_subscription_sent_with_pulls_goes_before_the_registered_one() -> None:
    pulled = register(2_000, "qty > 9", operation=Operation.PULL_SUBSCRIPTION)
    before, row, gone, _ = history(register(1_000, "qty > 1"), pulled, unregister(3_000))
    assert not before.sent_with_pull
    assert (row.expression, row.sent_with_pull, row.registered) == ("qty > 9", True, True)
    assert row.filter_expression == "qty > 1", "the bit maps still hold the registered filter"
    assert (gone.sent_with_pull, gone.registered) == (True, False)


def test_a_subscription_sent_with_pulls_ends_when_no_client_lists_its_topic() -> None:
    def listed(at: int, client: str, *topics: str) -> SubscriptionEvent:
        subscriptions: Any = tuple(
            {"topic": topic, "expression": "qty > 9", "type": "SQL92", "version": 1} for topic in topics
        )
        return SubscriptionEvent(at, Operation.HEARTBEAT, "cg", subscriptions, client_id=client)

    def consuming_at_the_end(*events: SubscriptionEvent) -> list[str]:
        last = {row.topic: row for row in history(*events)}
        return [topic for topic, row in last.items() if row.is_consuming]

    both = [listed(1_000, "a", "OrderEvents", "Other"), listed(2_000, "b", "OrderEvents", "Other")]
    both.append(register(3_000, "qty > 9", operation=Operation.PULL_SUBSCRIPTION))
    assert consuming_at_the_end(*both, listed(4_000, "a", "Other")) == ["OrderEvents", "Other"]
    assert consuming_at_the_end(*both, listed(4_000, "a", "Other"), listed(5_000, "b", "Other")) == ["Other"]
    without_b = unregister(5_000, client_id="b")
    assert consuming_at_the_end(*both, listed(4_000, "a", "Other"), without_b) == ["Other"]


def test_the_last_of_two_changes_in_one_millisecond_counts() -> None:
    (row,) = history(register(1_000, "qty > 1", 1), register(1_000, "qty > 2", 2))
    assert (row.valid_from, row.valid_to, row.expression) == (1_000, None, "qty > 2")
    first, *_ = history(register(1_000, "qty > 1"), unregister(2_000), register(2_000, "qty > 1", 1_000))
    assert (first.valid_from, first.valid_to) == (1_000, None), "nothing changed in the end"


def test_a_lower_version_changes_nothing() -> None:
    (row,) = history(register(1_000, "qty > 1", 7), register(2_000, "qty > 2", 6))
    assert (row.expression, row.sub_version, row.valid_to) == ("qty > 1", 7, None)


def test_a_group_is_registered_until_its_last_client_leaves() -> None:
    events = [
        register(1_000, "qty > 1", 1, client_id="a", operation=Operation.HEARTBEAT),
        register(2_000, "qty > 1", 1, client_id="b", operation=Operation.HEARTBEAT),
        unregister(3_000, client_id="a"),
        unregister(4_000, client_id="b"),
    ]
    first, *_ = history(*events)
    assert (first.valid_from, first.valid_to) == (1_000, 4_000)


def test_a_topic_that_a_heartbeat_leaves_out_dies() -> None:
    heartbeat = SubscriptionEvent(2_000, Operation.HEARTBEAT, "cg")
    _, row, _ = history(register(1_000, "qty > 1"), heartbeat)
    assert (row.registered, row.dead_time) == (False, 2_000)


def test_a_group_that_left_as_a_whole_has_no_clients_left() -> None:
    """Source: ConsumerManager.unregisterConsumer removes a group with its last client."""
    events = [
        register(1_000, "qty > 1", 1, client_id="a", operation=Operation.HEARTBEAT),
        register(2_000, "qty > 1", 1, client_id="b", operation=Operation.HEARTBEAT),
        unregister(3_000),
        register(4_000, "qty > 1", 1, client_id="a", operation=Operation.HEARTBEAT),
        unregister(5_000, client_id="a"),
    ]
    *_, last = [row for row in history(*events) if row.valid_from <= 5_000]
    assert (last.valid_from, last.registered) == (5_000, False)
