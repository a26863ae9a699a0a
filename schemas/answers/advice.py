"""Advises, topic by topic, whether the broker's filter bit map pays off, with the measured numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from filtering.bit_map_advice import BitMapAdvice, TopicLoad, bit_map_advice
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.filter_kinds import FilterKinds
from schemas.commitlog import COMMITLOG
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.aggregates import Key, sums

_COUNTS = ("scanned", "passed_stage1", "passed_stage2", "bit_map_false_positives")


@dataclass(frozen=True)
class TopicAdvice:
    """The advice for one topic: ``load`` has the measured numbers, ``bit_map`` the advice that follows from them."""

    topic: str
    load: TopicLoad
    bit_map: BitMapAdvice


def advice(facts: BrokerFacts) -> list[TopicAdvice]:
    """The advice for each topic that has messages and subscribers, without retry topics.

    Raises UsageError for a replay.
    """
    facts.check_has_messages()
    sizes = _sizes(facts)
    by_topic: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
    for row in facts.in_force:
        if row.topic in sizes and not row.topic.startswith(RETRY_TOPIC_PREFIX):
            by_topic[row.topic].append(row)
    counts = _counts_of_sql92(facts)
    topics = []
    for topic, rows in sorted(by_topic.items()):
        load = _load(facts, rows, sizes[topic], counts)
        topics.append(TopicAdvice(topic, load, bit_map_advice(load, facts.broker.bloom_filter)))
    return topics


def _counts_of_sql92(facts: BrokerFacts) -> dict[Key, dict[str, int]]:
    """The counts of each group and topic, without those of nights in which the group had tags."""
    counts = facts.sums(DELIVERY_STATS, ["consumer_group", "topic"], _COUNTS)
    kinds = FilterKinds(facts)
    changed = {key for key in counts if kinds.changed(key)}
    if not changed:
        return counts
    counts |= {key: dict.fromkeys(_COUNTS, 0) for key in changed}
    for (run, *key), of_night in facts.sums(DELIVERY_STATS, ["run", "consumer_group", "topic"], _COUNTS).items():
        if (whose := tuple(key)) in changed and kinds.used_sql92(whose, run):
            for name, count in of_night.items():
                counts[whose][name] += count
    return counts


def _sizes(facts: BrokerFacts) -> dict[str, tuple[int, int]]:
    """The number of messages and their bytes, by topic."""
    rows = facts.rows(COMMITLOG, ["topic", "store_size"])
    counted = rows.append_column("messages", pa.array(np.ones(len(rows), np.int64)))
    totals = sums(counted, ["topic"], ["messages", "store_size"])
    return {topic: (total["messages"], total["store_size"]) for (topic,), total in totals.items()}


def _load(
    facts: BrokerFacts, rows: Iterable[SubscriptionRow], size: tuple[int, int], counts: Mapping[Key, Mapping[str, int]]
) -> TopicLoad:
    kinds: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for row in rows:
        kind = _kind(row)
        kinds[kind] += 1
        if kind == "groups":
            totals.update(counts.get(row.key, {}))
    messages, all_bytes = size
    brokers = (facts.broker, *(night.broker for night in facts.nights))
    had_bit_maps = all(broker.calculates_bit_maps for broker in brokers)
    return TopicLoad(
        messages=messages,
        message_bytes=all_bytes / max(1, messages),
        groups=kinds["groups"],
        dead_groups=kinds["dead_groups"],
        sent_with_pull=kinds["sent_with_pull"],
        tag_groups=kinds["tag_groups"],
        scanned=totals["scanned"],
        passed_stage1=totals["passed_stage1"],
        matched=totals["passed_stage2"],
        false_positives=totals["bit_map_false_positives"] if had_bit_maps else None,
    )


def _kind(row: SubscriptionRow) -> str:
    """The kind of subscription, which is the field of TopicLoad that counts it if there is one."""
    if is_tag_type(row.expression_type):
        return "tag_groups"
    if row.sent_with_pull:
        return "sent_with_pull"
    if row.filter_data is None:
        return "without_filter_data"
    return "groups" if row.dead_time is None else "dead_groups"
