"""Advises, topic by topic, whether the broker's filter bit map pays off, with the measured numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from answers.facts import BrokerFacts
from filtering.bit_map_advice import BitMapAdvice, TopicLoad, bit_map_advice
from filtering.delivery.pull_window import BEGINNING
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.history import states_by_key
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import Key, one_of, sums, within
from schemas.tables import CONSUMEQUEUE, DELIVERY_STATS

# Kinds of filters in the nights of a broker.


class FilterKinds:
    """The kinds of filters that the history of subscriptions shows."""

    def __init__(self, facts: BrokerFacts) -> None:
        self._facts = facts
        self._states = states_by_key(facts.history)
        spans = pairwise([BEGINNING, *(night.as_of or 0 for night in facts.nights)])
        self._spans = {night.run: span for night, span in zip(facts.nights, spans, strict=True)}

    def used_sql92(self, key: GroupTopic, run: str) -> bool | None:
        """Whether a group filtered by SQL92 in a night; None: by both. A group that was away has the filter it left."""
        begin, end = self._spans[run]
        states = [
            row
            for row in self._states[key]
            if row.valid_from <= end and (row.valid_to is None or row.valid_to > begin + 1)
        ]
        used = [row for row in states if row.is_consuming] or states[-1:]
        if len({is_tag_type(row.expression_type) for row in used}) > 1:
            used = [row for row in used if self._filtered(row, begin + 1)]
        kinds = {not is_tag_type(row.expression_type) for row in used}
        return None if len(kinds) > 1 else True in kinds

    def _filtered(self, row: SubscriptionRow, begin: int) -> bool:
        """Whether a group may have filtered messages under a state since ``begin`` (ms): new or missed ones."""
        before = [each for each in self._states[row.key] if each.valid_to == row.valid_from and each.is_consuming]
        if row.valid_from >= begin and not before:
            return True
        span = within("store_timestamp", max(row.valid_from, begin), row.valid_to)
        return len(self._facts.rows(CONSUMEQUEUE, ["store_timestamp"], [one_of("topic", [row.topic]), span])) > 0

    def changed(self, key: GroupTopic) -> bool:
        """Whether a group ever changed from one kind to the other."""
        return len({is_tag_type(row.expression_type) for row in self._states[key]}) > 1


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
    for (run, *key), counts_of_night in facts.sums(DELIVERY_STATS, ["run", "consumer_group", "topic"], _COUNTS).items():
        if (whose := tuple(key)) in changed and kinds.used_sql92(whose, run):
            for name, count in counts_of_night.items():
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
