"""The kernels against all that a real broker and its consumers did, without Spark."""

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from filtering.broker_config import BrokerConfig
from filtering.replay import bit_planes
from filtering.replay.calc_bit_map import filter_data_in_force
from filtering.replay.delivery import Delivery
from filtering.replay.dispatch import Dispatch
from filtering.replay.message_filter import message_filters
from filtering.subscription_data import build_subscription_data, is_tag_type
from filtering.subscriptions.history import SubscriptionRow, subscription_history
from filtering.subscriptions.in_force import in_force_at_the_end
from filtering.subscriptions.sources import parse_subscriptions
from tests.captures import UNDAMAGED, capture, rows

PROPERTIES = pa.map_(pa.string(), pa.string())


@cache
def broker(name: str) -> BrokerConfig:
    return BrokerConfig.from_properties((capture(name) / "broker.conf").read_text())


@cache
def history(name: str) -> list[SubscriptionRow]:
    events = parse_subscriptions((capture(name) / "subscription_events.jsonl").read_text(encoding="utf-8"))
    assert not events.rejected
    return subscription_history(events.events, broker(name))


@cache
def entries(name: str) -> pa.Table:
    """What dispatch makes of the messages that have an entry, with queue offsets in order."""
    with_entry = {entry["commitLogOffset"] for entry in rows(name, "consumequeue")}
    messages = [row for row in rows(name, "messages") if row["physicalOffset"] in with_entry]
    messages.sort(key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
    properties = [row["properties"] or {} for row in messages]
    batch = pa.RecordBatch.from_pydict(
        {
            "broker_name": pa.array(["b"] * len(messages)),
            "topic": pa.array([row["topic"] for row in messages]),
            "queue_id": pa.array([row["queueId"] for row in messages], pa.int32()),
            "queue_offset": pa.array([row["queueOffset"] for row in messages], pa.int64()),
            "commitlog_offset": pa.array([row["physicalOffset"] for row in messages], pa.int64()),
            "store_size": pa.array([row["storeSize"] for row in messages], pa.int32()),
            "store_timestamp": pa.array([row["storeTimestamp"] for row in messages], pa.int64()),
            "tags": pa.array([each.get("TAGS") for each in properties], pa.string()),
            "properties": pa.array([list(each.items()) for each in properties], PROPERTIES),
        }
    )
    config = broker(name)
    dispatch = Dispatch(filter_data_in_force(history(name), config), config.bloom_filter.m, config.delay_levels)
    return pa.Table.from_batches(list(dispatch(iter([batch]))))


@cache
def of_topic(name: str, topic: str) -> pa.RecordBatch:
    table = entries(name)
    chosen = table.filter(pa.compute.equal(table["topic"], topic)).combine_chunks()
    return chosen.to_batches()[0]


@pytest.mark.parametrize("name", UNDAMAGED)
def test_entries_and_bit_maps_are_those_of_the_broker(name: str) -> None:
    made = {
        (entry["topic"], entry["queue_id"], entry["queue_offset"]): (
            entry["commitlog_offset"],
            entry["size"],
            entry["tags_code"],
            entry["filter_bit_map"] and entry["filter_bit_map"].hex(),
        )
        for entry in entries(name).select(
            ["topic", "queue_id", "queue_offset", "commitlog_offset", "size", "tags_code", "filter_bit_map"]
        ).to_pylist()
    }  # fmt: skip
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


def subscription_of(name: str, row: dict[str, Any]) -> SubscriptionRow:
    """The subscription that a row of delivered.jsonl was made with."""
    in_force = in_force_at_the_end(history(name), lambda: 0, broker(name))
    found = [each for each in in_force if (each.consumer_group, each.topic) == (row["group"], row["topic"])]
    if "sent with every pull" not in row["mode"]:
        return found[0]
    tag = build_subscription_data(row["topic"], row["expression"]) if is_tag_type(row["type"]) else None
    nothing: dict[str, Any] = dict.fromkeys(SubscriptionRow.__dataclass_fields__)
    return SubscriptionRow(
        **nothing
        | {
            "consumer_group": row["group"],
            "topic": row["topic"],
            "expression": row["expression"],
            "expression_type": row["type"],
            "sub_version": 1,
            "registered": False,
            "sent_with_pull": True,
            "tags_set": tag and tuple(tag.tags_set),
            "code_set": tag and tuple(tag.code_set),
        }
    )


@pytest.mark.parametrize("name", UNDAMAGED)
def test_every_group_gets_what_its_consumer_got(name: str) -> None:
    config = broker(name)
    others = in_force_at_the_end(history(name), lambda: 0, config)
    for row, stage1 in zip(rows(name, "delivered"), rows(name, "cqfilter"), strict=True):
        subscription = subscription_of(name, row)
        key = (row["group"], row["topic"])
        around = [each for each in others if (each.consumer_group, each.topic) != key]
        (chosen,) = [f for f in message_filters([*around, subscription], config) if (f.consumer_group, f.topic) == key]
        delivery = Delivery([chosen], config.bloom_filter.m)
        batch = of_topic(name, row["topic"])
        times = batch["store_timestamp"].to_numpy()
        outcome = delivery.run(batch["properties"], batch["tags_code"], times, batch["filter_bit_map"])
        places = list(zip(batch["queue_id"].to_pylist(), batch["queue_offset"].to_pylist(), strict=True))
        client = _places(outcome.delivered, places)
        assert client == sorted(map(tuple, row["client"])), (name, row["group"], row["topic"], row["mode"])
        broker_set = sorted(client + _places(outcome.dropped_by_client, places))
        assert broker_set == sorted(map(tuple, row["broker"])), (name, row["group"], row["topic"], row["mode"])
        passed = delivery.stage1(batch["tags_code"], times, batch["filter_bit_map"])
        flags = bit_planes.unpack(passed, batch.num_rows)[0]
        assert sum(queue["matched"] for queue in stage1["queues"].values()) == outcome.passed_stage2[0]
        for queue_id, queue in stage1["queues"].items():
            in_queue = np.asarray([place[0] == int(queue_id) for place in places])
            bits = np.packbits(flags[in_queue], bitorder="little").tobytes().hex()
            assert bits == queue["cqPassBits"], (name, row["group"], row["topic"], queue_id)


def _places(shared: list[Any], places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for delivered in shared:
        found += [places[i] for i in delivered.positions]
    return sorted(found)
