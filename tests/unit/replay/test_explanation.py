"""What is said about one message and one group is what the broker and the client did with it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from filtering.replay.explanation import Verdict, explain
from filtering.replay.message_filter import MessageFilter, message_filters
from filtering.subscriptions.in_force import in_force_at_the_end
from tests.captures import rows
from tests.unit.replay.test_delivery import broker, entries, history


def filters(name: str) -> dict[tuple[str, str], MessageFilter]:
    in_force = in_force_at_the_end(
        history(name), lambda: max(entries(name)["store_timestamp"].to_pylist()), broker(name)
    )
    return {(each.consumer_group, each.topic): each for each in message_filters(in_force, broker(name))}


@cache
def messages(name: str, topic: str) -> list[dict[str, Any]]:
    return [
        row | {"properties": dict(row["properties"] or ())}
        for row in entries(name).to_pylist()
        if row["topic"] == topic
    ]


def test_every_verdict_is_what_happened() -> None:
    by_group = filters("small")
    bit_num = broker("small").bloom_filter.m
    passed_stage1 = {
        (row["group"], row["topic"], int(queue)): counts["cqPass"]
        for row in rows("small", "cqfilter")
        for queue, counts in row["queues"].items()
    }
    checked = 0
    for (group, topic), message_filter in by_group.items():
        told = [row for row in rows("small", "delivered") if (row["group"], row["topic"]) == (group, topic)]
        if len(told) != 1:
            continue
        got, stage1 = set(), Counter[int]()
        for message in messages("small", topic):
            verdicts = explain(message_filter, message, bit_num)
            stage1[message["queue_id"]] += all(v.passed for v in verdicts if v.filter.startswith("stage 1"))
            if all(verdict.passed for verdict in verdicts):
                got.add((message["queue_id"], message["queue_offset"]))
        assert got == set(map(tuple, told[0]["client"])), (group, topic)
        for queue, count in stage1.items():
            assert passed_stage1.get((group, topic, queue), count) == count, (group, topic)
        checked += 1
    assert checked > 45


def test_the_verdict_names_what_it_saw() -> None:
    by_group = filters("small")
    bit_num = broker("small").bloom_filter.m
    last = max(messages("small", "OrderEvents"), key=lambda row: row["store_timestamp"])
    message = last | {
        "properties": {"price": "low", "TAGS": "BBAa"}, "tags_code": 2031744, "filter_bit_map": None,
    }  # fmt: skip
    price = by_group["cg_sql_price_range", "OrderEvents"]
    assert explain(price, message, bit_num) == [
        Verdict("stage 1: filter bit map", True, "not asked: the entry has no bit map of the broker's size"),
        Verdict("stage 2: expression", False, "the expression is an error for no region, price = 'low'"),
    ]
    no_bit = message | {"filter_bit_map": bytes(bit_num // 8)}
    bits = sorted(set(price.bit_pos))
    assert explain(price, no_bit, bit_num) == [
        Verdict("stage 1: filter bit map", False, f"the group's bits {bits} are not all set")
    ]
    assert explain(price, no_bit | {"store_timestamp": price.born_time}, bit_num)[0].passed
    collision = by_group["cg_tag_AaAa_BBBB", "TagLab"]
    assert explain(collision, message, bit_num) == [
        Verdict("stage 1: tags code", True, "tags code 2031744 is one of the subscription's"),
        Verdict("client: tag", False, "the tag is not one of the subscription's: TAGS = 'BBAa'"),
    ]
    assert explain(by_group["cg_all_orders", "OrderEvents"], message, bit_num) == []
