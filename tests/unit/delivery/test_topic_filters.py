"""The filters against all that a real broker and its consumers did."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from filtering.broker_config import BrokerConfig, read_properties
from filtering.delivery.delivery_blocks import MatchSets
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import MessageFilter, message_filters
from filtering.delivery.pull_window import NO_END, PullWindow, UncertainRange, filter_data_in_force
from filtering.delivery.topic_filters import WINDOW_COUNTS, TopicFilters, count_uncertain
from filtering.matcher import packed_bits
from filtering.predicate import FALSE, TRUE, TextIn
from filtering.sql92 import Expressions, compile
from filtering.subscriptions.history import in_force_at, subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow, compile_subscription
from schemas.subscription_files import parse_subscriptions
from tests.captures import UNDAMAGED, capture, rows
from tests.entries import entries

WITHOUT_FILTER_DATA: dict[str, Any] = {"filter_data": None, "registered": False, "is_consuming": False}


@cache
def broker(name: str) -> BrokerConfig:
    return read_properties((capture(name) / "broker.conf").read_text()).config


@cache
def history(name: str) -> list[SubscriptionRow]:
    events = parse_subscriptions((capture(name) / "subscription_events.jsonl").read_text(encoding="utf-8"))
    assert not events.rejected
    return subscription_history(events.events, broker(name))


@cache
def messages(name: str, topic: str) -> list[dict[str, Any]]:
    """The messages of a topic that have an entry, by queue and queue offset."""
    with_entry = {entry["commitLogOffset"] for entry in rows(name, "consumequeue")}
    entry_rows = [
        row for row in rows(name, "messages") if row["physicalOffset"] in with_entry and row["topic"] == topic
    ]
    entry_rows.sort(key=lambda row: (row["queueId"], row["queueOffset"]))
    return [
        {
            "queue_id": row["queueId"],
            "queue_offset": row["queueOffset"],
            "commitlog_offset": row["physicalOffset"],
            "size": row["storeSize"],
            "store_timestamp": row["storeTimestamp"],
            "properties": row["properties"],
        }
        for row in entry_rows
    ]


@cache
def dispatched(name: str, topic: str) -> Entries:
    """The entries of a topic with the bit maps that our filters calculate."""
    made = entries(topic, messages(name, topic))
    config = broker(name)
    data = filter_data_in_force(history(name), config).get(topic, ())
    bit_maps = TopicFilters(config.bloom_filter.m, data).run(made).bit_maps
    no_bit_maps = entries(topic, messages(name, topic), [None] * len(made)).bit_maps
    return replace(made, bit_maps=no_bit_maps if bit_maps is None else bit_maps)


@pytest.mark.parametrize("name", UNDAMAGED)
def test_entries_and_bit_maps_are_those_of_the_broker(name: str) -> None:
    made = {}
    for topic in {entry["topic"] for entry in rows(name, "consumequeue")}:
        topic_entries = dispatched(name, topic)
        assert topic_entries.bit_maps is not None
        for i, bit_map in enumerate(topic_entries.bit_maps.to_pylist()):
            place = topic, int(topic_entries.queue_id[i]), int(topic_entries.queue_offset[i])
            entry = topic_entries.commitlog_offset[i], topic_entries.size[i], topic_entries.tags_code[i]
            made[place] = (*map(int, entry), bit_map and bit_map.hex())
    expected = {
        (entry["topic"], entry["queueId"], entry["queueOffset"]): (
            entry["commitLogOffset"],
            entry["size"],
            entry["tagsCode"],
            entry["ext"]["bitMap"] if entry.get("ext") else None,
        )
        for entry in rows(name, "consumequeue")
    }
    assert made == expected


def in_force(name: str) -> list[SubscriptionRow]:
    """The subscriptions in force after the last event."""
    return in_force_at(history(name), max(row["at"] for row in rows(name, "subscription_events")))


def subscription_of(name: str, row: dict[str, Any]) -> SubscriptionRow:
    """The subscription that a row of delivered.jsonl was made with."""
    subscriptions = [
        each for each in in_force(name) if (each.consumer_group, each.topic) == (row["group"], row["topic"])
    ]
    if "sent with every pull" not in row["mode"]:
        return subscriptions[0]
    compiled = compile_subscription(row["topic"], row["expression"], row["type"], Expressions())
    return SubscriptionRow(
        consumer_group=row["group"], topic=row["topic"], valid_from=0, valid_to=None, expression=row["expression"],
        expression_type=row["type"], sub_version=1, sent_with_pull=True, class_filter_mode=False, compiled=compiled,
        **WITHOUT_FILTER_DATA,
    )  # fmt: skip


@pytest.mark.parametrize("name", UNDAMAGED)
def test_every_group_gets_what_its_consumer_got(name: str) -> None:
    config = broker(name)
    others = in_force(name)
    for row, stage1 in zip(rows(name, "delivered"), rows(name, "cqfilter"), strict=True):
        subscription = subscription_of(name, row)
        key = (row["group"], row["topic"])
        around = [each for each in others if (each.consumer_group, each.topic) != key]
        (group_filter,) = [
            f for f in message_filters([*around, subscription], config) if (f.consumer_group, f.topic) == key
        ]
        topic_entries = dispatched(name, row["topic"])
        filters = TopicFilters(config.bloom_filter.m, windows=[PullWindow(group_filter, 0)])
        outcome = filters.run(topic_entries)
        client = places(outcome.delivered, topic_entries)
        assert client == sorted(map(tuple, row["client"])), (name, *key, row["mode"])
        broker_set = sorted(client + places(outcome.dropped_by_client, topic_entries))
        assert broker_set == sorted(map(tuple, row["broker"])), (name, *key, row["mode"])
        flags = packed_bits.unpack(filters.stage1(topic_entries), len(topic_entries))[0]
        matched = outcome.counts[0, :, WINDOW_COUNTS.index("passed_stage2")]
        assert sum(queue["matched"] for queue in stage1["queues"].values()) == matched.sum()
        for queue_id, queue in stage1["queues"].items():
            in_queue = topic_entries.queue_id == int(queue_id)
            bits = np.packbits(flags[in_queue], bitorder="little").tobytes().hex()
            assert bits == queue["cqPassBits"], (name, *key, queue_id)


def places(sets: MatchSets, topic_entries: Entries) -> list[tuple[int, int]]:
    """Queue ids and queue offsets of what the only window got."""
    result: list[tuple[int, int]] = []
    for each in sets:
        at = each.positions
        result += zip(topic_entries.queue_id[at].tolist(), topic_entries.queue_offset[at].tolist(), strict=True)
    return sorted(result)


LEVELS = [
    {"queue_id": i // 10, "queue_offset": i % 10, "store_timestamp": 100 * i, "properties": {"level": str(i)}}
    for i in range(20)
]


def got(*windows: PullWindow) -> list[list[int]]:
    """The levels that each window got."""
    outcome = TopicFilters(64, windows=windows).run(entries("T", LEVELS))
    received: list[list[int]] = [[] for _ in windows]
    for each in outcome.delivered:
        for window in each.windows:
            received[window] += each.positions.tolist()
    return received


def above(level: int) -> MessageFilter:
    return MessageFilter(f"above_{level}", "T", expression=compile(f"level > {level}").predicate)


def test_a_window_decides_only_the_messages_of_its_time_and_offsets() -> None:
    every = MessageFilter("cg", "T")
    assert got(
        PullWindow(every, 0, stored_from=300, stored_to=500),
        PullWindow(every, 0, offsets={1: (0, 3)}),
        PullWindow(every, 0, offsets={1: (7, NO_END)}, only_listed=True),
        PullWindow(above(14), 0, stored_from=1000),
        PullWindow(above(14), 0, stored_to=1000),
        PullWindow(above(17), 0, offsets={0: (0, 0)}),
    ) == [[3, 4], [*range(10), 10, 11, 12], [17, 18, 19], [15, 16, 17, 18, 19], [], [18, 19]]


def test_the_times_of_a_window_at_the_ends_of_a_block() -> None:
    """The first message was stored at 0, the last one at 1900. The end of a window is exclusive."""
    every = MessageFilter("cg", "T")
    assert got(
        PullWindow(every, 0, stored_to=0),
        PullWindow(every, 0, stored_to=1),
        PullWindow(every, 0, stored_to=1900),
        PullWindow(every, 0, stored_from=1),
        PullWindow(every, 0, stored_from=1900),
        PullWindow(every, 0, stored_from=1901),
    ) == [[], [0], [*range(19)], [*range(1, 20)], [19], []]


@pytest.mark.parametrize(("born_time", "passed"), [(-1, 0), (0, 1), (900, 10), (1899, 19), (1900, 20)])
def test_bit_maps_decide_on_what_was_stored_after_the_filter_was_born(born_time: int, passed: int) -> None:
    """Source: ConsumerFilterData.isMsgInLive. No bit is set, so that messages pass only without their bit map."""
    window = PullWindow(MessageFilter("cg", "T", bit_pos=(3,), born_time=born_time), 0)
    outcome = TopicFilters(64, windows=[window]).run(entries("T", LEVELS, [bytes(8)] * len(LEVELS)))
    assert outcome.counts[0, :, WINDOW_COUNTS.index("passed_stage1")].sum() == passed


def test_counts_are_by_window_and_queue() -> None:
    window = PullWindow(replace(above(14), failure=compile("level = 'x'").predicate), 0, stored_from=500)
    changes = [UncertainRange("above_14", "T", above(4).expression, above(14).expression, 700, 1200)]
    outcome = TopicFilters(64, windows=[window], uncertain_ranges=changes).run(entries("T", LEVELS))
    assert outcome.queue_ids.tolist() == [0, 1]
    assert outcome.scanned[outcome.mask_of].tolist() == [[5, 10]]
    assert outcome.counts[0, :, WINDOW_COUNTS.index("delivered")].tolist() == [0, 5]
    assert [each.counts.tolist() for each in outcome.uncertain] == [[3], [2]]


def test_uncertain_messages_end_in_each_queue_where_the_held_pull_ends() -> None:
    """Level 13 ends it, and is in its answer. Level 6 was stored before the change."""
    until = TextIn("level", frozenset(["6", "13"]))
    change = UncertainRange("above_4", "T", FALSE, above(4).expression, 700, 1_600, until=until)
    filters = TopicFilters(64, uncertain_ranges=[change])
    for cuts in ([], [13], [14], [12, 13, 15]):
        parts = [LEVELS[begin:end] for begin, end in pairwise([0, *cuts, len(LEVELS)])]
        blocks = [filters.run(entries("T", part)) for part in reversed(parts)]
        uncertain = {
            queue_id: count_uncertain(
                [
                    block.uncertain[block.queue_ids.tolist().index(queue_id)]
                    for block in blocks
                    if queue_id in block.queue_ids.tolist()
                ]
            ).tolist()
            for queue_id in (0, 1)
        }
        assert uncertain == {0: [3], 1: [4]}, cuts


def test_windows_that_got_the_same_share_one_set() -> None:
    tags = replace(above(4), tags=TRUE, client_tags=TextIn("level", frozenset(["7"])))
    outcome = TopicFilters(64, windows=[PullWindow(f, 0) for f in (above(4), above(4), tags, above(40))]).run(
        entries("T", LEVELS)
    )
    assert [(each.windows, each.count) for each in outcome.delivered] == [((0, 1), 15), ((2,), 1)]
    assert [(each.windows, each.count) for each in outcome.dropped_by_client] == [((2,), 14)]


def test_a_filter_that_nothing_passes() -> None:
    nothing = replace(above(4), tags=FALSE)
    assert got(PullWindow(nothing, 0)) == [[]]
