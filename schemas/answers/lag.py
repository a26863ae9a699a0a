"""How far each group is behind: by offsets, by the messages that it would receive, and by the broker's own estimate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from filtering.consumption.group_night import COMMIT_DELAY
from filtering.consumption.lag import TopicLag
from filtering.consumption.offsets import Offsets
from filtering.delivery.message_filter import MessageFilter, message_filters
from filtering.delivery.pull_window import FOREVER, OffsetRange, PullWindow
from filtering.predicate import TRUE
from filtering.pulls.pull import refusal
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.history import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.no_lag import check_subscribed
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.aggregates import group_numbers
from schemas.delta.table_rows import filtered, one_of, within
from schemas.messages.stored_entries import read_entries, stored_ranges


@dataclass(frozen=True)
class CommittedOffsets:
    """The offsets of a consumerOffset.json newer than the last night, and when it was saved (ms; None: unknown)."""

    offsets: Mapping[GroupTopic, Offsets]
    saved_at: int | None = None


@dataclass(frozen=True)
class Lag:
    """Where a group is in a queue. Offsets are queue offsets, times are ms.

    ``committed`` is the offset that the broker stored, None if no snapshot has one. ``position`` is where the group
    goes on: a group that keeps up has pulled more than it has committed. ``lag`` is ``end`` minus ``committed`` (or
    ``position``), as mqadmin shows it. ``exact_lag`` counts the messages from ``position`` on that the group would
    receive, and ``broker_estimate`` is the broker's metric for the same. ``oldest_pending_at`` is when the oldest of
    these messages was stored, ``oldest_pending_ms`` its age at the end of the last night. ``refusal`` is the code with
    which the broker refuses the group's pulls; such a group receives nothing.
    """

    consumer_group: str
    topic: str
    queue_id: int
    committed: int | None
    position: int
    end: int
    lag: int
    exact_lag: int
    broker_estimate: int
    oldest_pending_at: int | None
    oldest_pending_ms: int | None
    is_consuming: bool
    refusal: str | None

    @property
    def estimate_error(self) -> int:
        """The broker's estimate minus the exact lag."""
        return self.broker_estimate - self.exact_lag


def lag(
    facts: BrokerFacts,
    newer: CommittedOffsets | None = None,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
) -> list[Lag]:
    """A row for each group, topic and queue, in this order, after the last night. ``groups``, ``topics``: only these.

    ``newer``: offsets of a later time. The ends of the queues stay those of the last night. Filter hooks of clients
    are not applied. Raises UsageError for a group that never subscribed, or to none of these topics, and for an unknown
    topic.
    """
    for topic in topics or ():
        facts.check_topic(topic)
    for group in groups or ():
        check_subscribed(facts, group, topics)
    in_force = {(row.consumer_group, row.topic): row for row in facts.in_force()}
    by_topic: defaultdict[str, list[_Standing]] = defaultdict(list)
    behind = set()
    for standing in _standings(facts, newer, groups, topics):
        by_topic[standing.topic].append(standing)
        if standing.is_behind:
            behind.add(standing.consumer_group)
    rows_behind = [row for row in in_force.values() if row.consumer_group in behind]
    filters = {(found.consumer_group, found.topic): found for found in message_filters(rows_behind, facts.broker)}
    counts = {topic: _topic_lag(standings, in_force, filters, facts) for topic, standings in by_topic.items()}
    _scan(facts, counts)
    rows = [
        _row(standing, in_force.get(standing.key), counts[topic], facts)
        for topic, standings in by_topic.items()
        for standing in standings
    ]
    return sorted(rows, key=lambda row: (row.consumer_group, row.topic, row.queue_id))


@dataclass(frozen=True)
class _Standing:
    """Where a group is in a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    committed: int | None
    position: int
    end: int

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def counted_from(self) -> int:
        """The offset from which the broker counts the lag: the committed one, or else where the group goes on."""
        return self.position if self.committed is None else self.committed

    @property
    def is_behind(self) -> bool:
        """Whether the group has entries left to pull or to commit."""
        return min(self.position, self.counted_from) < self.end


def _standings(
    facts: BrokerFacts, newer: CommittedOffsets | None, groups: Collection[str] | None, topics: Collection[str] | None
) -> Iterator[_Standing]:
    rows = facts.offsets.filter(pc.is_valid(facts.offsets["told_to"]))  # the others have no subscription
    chosen = (("consumer_group", groups), ("topic", topics))
    rows = filtered(rows, [one_of(column, values) for column, values in chosen if values is not None])
    names = ("consumer_group", "topic", "queue_id", "committed", "told_to", "queue_end")
    for group, topic, queue_id, committed, told_to, end in zip(
        *(rows[name].to_pylist() for name in names), strict=True
    ):
        position = told_to or 0
        later = newer.offsets.get((group, topic), {}).get(queue_id) if newer is not None else None
        if newer is not None and later is not None:
            # Commits lag behind what was pulled: a snapshot of about the same time adds nothing new.
            is_later = newer.saved_at is None or newer.saved_at >= facts.as_of + COMMIT_DELAY
            committed, position = later, later if is_later else max(later, position)
        yield _Standing(group, topic, queue_id, committed, min(position, end), end)


def _topic_lag(
    standings: Iterable[_Standing],
    in_force: Mapping[GroupTopic, SubscriptionRow],
    filters: Mapping[GroupTopic, MessageFilter],
    facts: BrokerFacts,
) -> TopicLag:
    pending: defaultdict[GroupTopic, dict[int, OffsetRange]] = defaultdict(dict)
    estimated: defaultdict[GroupTopic, dict[int, OffsetRange]] = defaultdict(dict)
    for standing in standings:
        key, queue_id, end = standing.key, standing.queue_id, standing.end
        if key not in filters:
            continue
        if standing.position < end:
            pending[key][queue_id] = standing.position, end
        begin = standing.counted_from
        # For a group that left, and one whose first filter passes everything, the broker counts all entries.
        is_filtered = filters[key].tags is not TRUE or filters[key].bit_pos
        if begin < end and in_force[key].registered and is_filtered:
            estimated[key][queue_id] = begin, end

    def windows(ranges: Mapping[GroupTopic, Mapping[int, OffsetRange]]) -> list[PullWindow]:
        return [
            PullWindow(filters[key], in_force[key].valid_from, offsets=offsets, only_listed=True)
            for key, offsets in ranges.items()
        ]

    return TopicLag(facts.broker.bloom_filter.m, windows(pending), windows(estimated))


def _scan(facts: BrokerFacts, counts: Mapping[str, TopicLag]) -> None:
    """Adds all messages that some group has yet to pull to the counters of their topics."""
    needed = {topic: count for topic, count in counts.items() if count.pending or count.estimated}
    begin = _first_needed(facts, needed)
    if begin is None:
        return
    commitlog, consumequeue = (facts.warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    properties = {topic: count.properties for topic, count in needed.items()}
    # Messages that the broker deleted reach no group.
    offsets = max(begin, facts.last.log_start or 0), FOREVER
    for part in stored_ranges(lambda table: facts.warehouse.files(table, facts.name), offsets):
        for entries in read_entries(part, commitlog, consumequeue, properties):
            needed[entries.topic].add(entries)


def _first_needed(facts: BrokerFacts, counts: Mapping[str, TopicLag]) -> int | None:
    """The physical offset of the first message that some window reaches, None if there is none."""
    from_offsets: dict[tuple[str, int], int] = {}
    for topic, count in counts.items():
        for window in (*count.pending, *count.estimated):
            for queue_id, (low, _) in window.offsets.items():
                from_offsets[topic, queue_id] = min(low, from_offsets.get((topic, queue_id), low))
    if not from_offsets:
        return None
    wanted = [one_of("topic", counts), within("queue_offset", min(from_offsets.values()))]
    rows = facts.rows(CONSUMEQUEUE, ["topic", "queue_id", "queue_offset", "commitlog_offset"], wanted)
    keys, numbers = group_numbers(rows, ["topic", "queue_id"])
    firsts = np.array([from_offsets.get(key, FOREVER) for key in keys], np.int64)
    is_needed = rows["queue_offset"].to_numpy() >= firsts[numbers]
    at = rows["commitlog_offset"].to_numpy()[is_needed]
    return int(at.min()) if len(at) else None


def _row(standing: _Standing, row: SubscriptionRow | None, counts: TopicLag, facts: BrokerFacts) -> Lag:
    waiting = counts.waiting_of(standing.consumer_group, standing.queue_id)
    behind = max(0, standing.end - standing.counted_from)
    sample = counts.sample_of(standing.consumer_group, standing.queue_id)
    code = refusal(row, facts.broker) if row is not None else None
    return Lag(
        standing.consumer_group,
        standing.topic,
        standing.queue_id,
        standing.committed,
        standing.position,
        standing.end,
        behind,
        waiting.messages if waiting else 0,
        sample.estimate(behind) if sample else behind,
        waiting.oldest_at if waiting else None,
        max(0, facts.as_of - waiting.oldest_at) if waiting else None,
        row is not None and row.is_consuming,
        code.name if code is not None else None,
    )
