"""Advises, topic by topic, whether the broker's filter bit map pays off, with the measured numbers.

With the bit map, the broker evaluates the expressions of all groups, dead ones included, on each message that it
stores, and writes the bits to the consume queue's extension. A pull then reads and evaluates only messages whose bits
are set. Without it, the pulls of a group read every message from the commit log and evaluate the expression on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from answers.facts import BrokerFacts
from filtering.bloom_filter import BloomFilter
from filtering.broker_config import CONSUME_QUEUE_EXT_UNIT, SHORTEST_RECORD
from filtering.frozen import frozen
from filtering.names import is_retry_topic
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.history import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import Key, one_of, sums, within
from schemas.tables import CONSUMEQUEUE, DELIVERY_STATS

# The work when messages are stored, and the reads that pulls save.


ERROR_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50)
LEAST_SAVED = 0.2
"""A bit map that saves a smaller share of the reads is not worth the evaluations."""


@frozen
class TopicLoad:
    """The messages, groups and pulls of one topic.

    ``messages`` messages of ``message_bytes`` bytes on average were stored. ``groups`` groups have filter data and are
    alive, ``dead_groups`` have left. Two kinds of groups use no bit map: ``sent_with_pull`` groups send their
    subscription with each pull, ``tag_groups`` subscribe to tags. The pulls of ``groups`` scanned ``scanned`` entries,
    of which ``passed_stage1`` passed the filter on the entry, so that the message was read, and ``matched`` matched.
    ``false_positives`` were checked with the bit map, passed it and did not match; None: the broker did not always have
    bit maps.
    """

    messages: int
    message_bytes: float
    groups: int
    dead_groups: int
    sent_with_pull: int
    tag_groups: int
    scanned: int
    passed_stage1: int
    matched: int
    false_positives: int | None

    @property
    def unchecked(self) -> int:
        """The entries that passed stage 1 only because their bit map does not cover the group, and do not match.

        Their messages were stored before the group's filter data was born, or without a bit map.
        """
        if self.false_positives is None:
            return 0
        return self.passed_stage1 - self.matched - self.false_positives


@frozen
class BitMapAdvice:
    """Whether to ``use`` the bit map, and why. Bytes, reads and evaluations are totals over all messages of the load.

    ``false_positive_rate`` is the expected rate of the broker's Bloom filter, ``measured_rate`` the actual one (None:
    the broker did not always have bit maps). Both are shares of the entries that were checked with the bit map and do
    not match. ``best`` is the Bloom filter with the fewest bytes written and read; None if no group uses a bit map.
    """

    use: bool
    reason: str
    store_evaluations: int
    reads_without: int
    reads_with: int
    extension_bytes: int
    saved_bytes: int
    false_positive_rate: float
    measured_rate: float | None
    best: BloomFilter | None


def bit_map_advice(load: TopicLoad, bloom_filter: BloomFilter) -> BitMapAdvice:
    """The advice for a topic. ``bloom_filter``: the one that the broker is configured with."""
    unmatched = load.scanned - load.matched - load.unchecked
    rate = false_positive_rate(bloom_filter, _matching(load))
    measured = None
    if load.false_positives is not None and unmatched:
        measured = load.false_positives / unmatched
    current = _Balance.of(load, bloom_filter, rate if measured is None else measured)
    best = _best(load) if load.groups else None
    use, reason = _verdict(load, current)
    if best is not None and load.scanned and not use:
        improved = _Balance.of(load, best, false_positive_rate(best, _matching(load)))
        if _verdict(load, improved)[0]:
            reason += f"; with maxErrorRateOfBloomFilter={best.f} and expectConsumerNumUseFilter={best.n} it would pay"
    return BitMapAdvice(
        use=use,
        reason=reason,
        store_evaluations=load.messages * (load.groups + load.dead_groups),
        reads_without=load.scanned,
        reads_with=current.reads,
        extension_bytes=current.extension_bytes,
        saved_bytes=current.saved_bytes,
        false_positive_rate=rate,
        measured_rate=measured,
        best=best,
    )


def false_positive_rate(bloom_filter: BloomFilter, matching: float) -> float:
    """The probability that all bits of a group that does not match are set, if ``matching`` groups match a message."""
    is_set: float = 1 - (1 - 1 / bloom_filter.m) ** (bloom_filter.k * matching)
    return is_set**bloom_filter.k


@frozen
class _Balance:
    """What pulls read with a bit map, the bytes that it takes, and the bytes of the reads that it saves."""

    reads: int
    extension_bytes: int
    saved_bytes: int

    @classmethod
    def of(cls, load: TopicLoad, bloom_filter: BloomFilter, rate: float) -> _Balance:
        """The cost and the savings of a bit map. ``rate``: its false positive rate, from 0 to 1."""
        always_read = load.matched + load.unchecked
        reads = always_read + round(rate * (load.scanned - always_read))
        extension = load.messages * (CONSUME_QUEUE_EXT_UNIT + bloom_filter.m // 8)
        return cls(reads, extension, round((load.scanned - reads) * load.message_bytes))


def _verdict(load: TopicLoad, balance: _Balance) -> tuple[bool, str]:
    if not load.groups:
        unused_by = [
            f"{count:,} {description}"
            for count, description in (
                (load.tag_groups, "use tags"),
                (load.sent_with_pull, "send their subscription with the pull"),
                (load.dead_groups, "have left"),
            )
            if count
        ]
        return False, f"no group would use it: {', '.join(unused_by) or 'no group subscribes by SQL92'}"
    if not load.scanned:
        return False, "its groups have pulled nothing so far"
    share = (load.scanned - balance.reads) / load.scanned
    if share < LEAST_SAVED:
        return False, f"it saves only {share:.0%} of the reads: most messages match, or pass without a match"
    has_sizes = load.message_bytes >= SHORTEST_RECORD  # in a message log, store_size may be missing
    if has_sizes and balance.saved_bytes <= balance.extension_bytes:
        return False, f"it saves {share:.0%} of the reads, but its extension takes more bytes than those reads"
    return True, f"it saves {share:.0%} of the reads"


def _matching(load: TopicLoad) -> float:
    """The average number of groups that match a message. Dead groups are assumed to match as often as live ones."""
    if not load.groups or not load.scanned:
        return 0.0
    return load.matched / load.scanned * (load.groups + load.dead_groups)


def _best(load: TopicLoad) -> BloomFilter:
    """The Bloom filter with the fewest bytes per message: written, and read for false positives."""
    unmatched_pulls = (load.scanned - load.matched) / max(1, load.messages)

    def cost(bloom_filter: BloomFilter) -> float:
        rate = false_positive_rate(bloom_filter, _matching(load))
        return bloom_filter.m / 8 + rate * unmatched_pulls * load.message_bytes

    return min(_candidates(load.groups + load.dead_groups), key=cost)


def _candidates(groups: int) -> Iterable[BloomFilter]:
    """Bloom filters for up to ``groups`` groups."""
    sizes = sorted({max(1, groups * share // 8) for share in range(1, 9)})
    return (BloomFilter.create_by_fn(f, n) for f in ERROR_RATES for n in sizes)


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
        states = [row for row in self._states[key] if row.valid_from <= end and row.end > begin + 1]
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


@frozen
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
        if row.topic in sizes and not is_retry_topic(row.topic):
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
