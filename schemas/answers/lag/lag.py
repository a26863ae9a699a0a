"""How far each group is behind: by offsets, by the messages that it would receive, and by the broker's own estimate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.consumption.allocation import ClientChecks
from filtering.consumption.lag import TopicLag, checked_range, checks_entries, is_measured
from filtering.delivery.message_filter import MessageFilter, message_filters
from filtering.delivery.pull_window import FOREVER, OffsetRange, PullWindow
from filtering.predicate import TRUE
from filtering.pulls.pull import ResponseCode, refusal
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.lag.no_lag import check_asked
from schemas.answers.lag.standings import CommittedOffsets, Standing, standings
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.aggregates import group_numbers, least
from schemas.delta.table_rows import one_of, within
from schemas.messages.stored_entries import read_entries
from schemas.messages.stored_ranges import stored_ranges


@dataclass(frozen=True)
class Lag(Standing):
    """How far a group is behind in a queue. Times are ms.

    ``behind`` is ``end`` minus ``committed`` (or ``position``), as mqadmin shows it. ``would_get`` counts the messages
    from ``position`` on that the group would receive, and ``broker_estimate`` is the broker's metric for the same,
    None if it has none, as no broker before 5.1.0 has. ``oldest_at`` is when the oldest of these messages was stored,
    ``oldest_ms`` its age at the end of the last night. ``refusal`` is the code with which the broker refuses the
    group's pulls; such a group receives nothing.
    """

    behind: int
    would_get: int
    broker_estimate: int | None
    oldest_at: int | None
    oldest_ms: int | None
    is_consuming: bool
    refusal: str | None

    @property
    def fields(self) -> dict[str, Any]:
        """All fields by name, for JSON and data frames."""
        return {name: getattr(self, name) for name in FIELDS}

    @property
    def estimate_error(self) -> int | None:
        """``broker_estimate`` minus ``would_get``."""
        return None if self.broker_estimate is None else self.broker_estimate - self.would_get

    @property
    def pulls(self) -> str:
        """Whether the group pulls: ``online``, ``away``, or ``refused`` with the code of the refusal."""
        if self.refusal is not None:
            return f"refused: {self.refusal}"
        return "online" if self.is_consuming else "away"


FIELDS = (*(each.name for each in fields(Lag)), "estimate_error", "ahead", "pulls")
"""The names of what JSON and data frames have of each queue."""


def lag_of_brokers(
    brokers: Sequence[BrokerFacts],
    newer: CommittedOffsets | None = None,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    only_behind: bool = False,
) -> list[tuple[BrokerFacts, list[Lag]]]:
    """The :func:`lag` of each broker.

    Raises UsageError for a group that on no broker subscribed, or to none of these topics, and for an unknown topic.
    """
    check_asked(brokers, groups, topics)
    return [(facts, lag(facts, newer, groups, topics, only_behind)) for facts in brokers]


def lag(
    facts: BrokerFacts,
    newer: CommittedOffsets | None = None,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    only_behind: bool = False,
) -> list[Lag]:
    """A row for each group, topic and queue, in this order, after the last night. ``groups``, ``topics``: only these.

    ``only_behind``: only the queues in which a group is behind, or beyond the end. ``newer``: offsets of a later time.
    The ends of the queues stay those of the last night. Filter hooks of clients are not applied.
    """
    in_force = {row.key: row for row in (facts.in_force if groups is None else facts.in_force_of(groups))}
    by_topic: defaultdict[str, list[Standing]] = defaultdict(list)
    behind = set()
    for standing in standings(facts, newer, groups, topics, only_behind=only_behind):
        by_topic[standing.topic].append(standing)
        if standing.is_behind:
            behind.add(standing.consumer_group)
    rows_behind = [row for row in in_force.values() if row.consumer_group in behind]
    filters = {found.key: found for found in message_filters(rows_behind, facts.broker)}
    firsts = _first_offsets(facts, by_topic)
    counts = {topic: _topic_lag(queues, in_force, filters, firsts, facts) for topic, queues in by_topic.items()}
    _scan(facts, counts)
    has_commits = newer is not None or facts.offsets["committed"].null_count < len(facts.offsets)
    clients = ClientChecks([event for event in facts.events if groups is None or event.group in groups])
    rows = [
        _row(standing, in_force.get(standing.key), counts[topic], has_commits, facts, clients)
        for topic, queues in by_topic.items()
        for standing in queues
    ]
    return sorted(rows, key=lambda row: (row.consumer_group, row.topic, row.queue_id))


def _first_offsets(facts: BrokerFacts, by_topic: Mapping[str, Iterable[Standing]]) -> dict[tuple[str, int], int]:
    """By topic and queue id, the first offset that the broker still has, or a committed offset if that is greater.

    Queues in which no group is behind may be left out.
    """
    behind: dict[str, list[int]] = {}
    for topic, queues in by_topic.items():
        committed = [each.committed for each in queues if each.committed is not None and each.committed < each.end]
        if committed:
            behind[topic] = committed
    if not facts.last.log_start or not behind:
        return {}
    in_log = within("commitlog_offset", facts.last.log_start)
    wanted = [one_of("topic", behind), in_log, within("queue_offset", min(map(min, behind.values())))]
    names = ["topic", "queue_id", "queue_offset", *(["commitlog_offset"] if facts.begins else [])]
    rows = facts.rows(CONSUMEQUEUE, names, wanted)
    if facts.begins:
        rows = rows.filter(pa.array(_is_present(rows, facts)))
    return least(rows, ["topic", "queue_id"], "queue_offset")


def _is_present(rows: pa.Table, facts: BrokerFacts) -> NDArray[np.bool_]:
    """Whether entries are of the present queues, not of those before they began again."""
    keys, numbers = group_numbers(rows, ["topic", "queue_id"])
    begins = np.array([facts.begins.get(key, 0) for key in keys], np.int64)
    is_present: NDArray[np.bool_] = rows["commitlog_offset"].to_numpy() >= begins[numbers]
    return is_present


def _topic_lag(
    queues: Iterable[Standing],
    in_force: Mapping[GroupTopic, SubscriptionRow],
    filters: Mapping[GroupTopic, MessageFilter],
    firsts: Mapping[tuple[str, int], int],
    facts: BrokerFacts,
) -> TopicLag:
    pending: defaultdict[GroupTopic, dict[int, OffsetRange]] = defaultdict(dict)
    estimated: defaultdict[GroupTopic, dict[int, OffsetRange]] = defaultdict(dict)
    for standing in queues:
        key, queue_id, end = standing.key, standing.queue_id, standing.end
        if key in filters and standing.position < end:
            pending[key][queue_id] = standing.position, end
        begin, row = standing.counted_from, in_force.get(key)
        if row is not None and begin < end and is_measured(row) and checks_entries(row, facts.broker):
            first = firsts.get((standing.topic, queue_id), 0)
            # Without tags and a bit map, all entries pass: the broker's sample would be their number.
            if begin < first or (key in filters and (filters[key].tags is not TRUE or filters[key].bit_pos)):
                estimated[key][queue_id] = checked_range(begin, end, first, facts.broker)

    def windows(ranges: Mapping[GroupTopic, Mapping[int, OffsetRange]]) -> list[PullWindow]:
        # The broker's first filter passes all entries for a subscription whose pulls it refuses.
        return [
            PullWindow(
                filters.get(key, MessageFilter(*key)),
                in_force[key].valid_from,
                offsets=offsets,
                only_listed=True,
                places=facts.places(key[1], offsets),
            )
            for key, offsets in ranges.items()
        ]

    return TopicLag(facts.broker, windows(pending), windows(estimated))


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
    if facts.begins:
        is_needed &= _is_present(rows, facts)
    at = rows["commitlog_offset"].to_numpy()[is_needed]
    return int(at.min()) if len(at) else None


def _row(
    standing: Standing,
    row: SubscriptionRow | None,
    counts: TopicLag,
    has_commits: bool,
    facts: BrokerFacts,
    clients: ClientChecks,
) -> Lag:
    """``has_commits``: whether a snapshot had committed offsets."""
    waiting = counts.waiting_of(standing.consumer_group, standing.queue_id)
    behind = max(0, standing.end - standing.counted_from)
    sample = counts.sample_of(standing.consumer_group, standing.queue_id)
    code = refusal(row, facts.broker) if row is not None else None
    if code is None and clients.without_subscription(*standing.key, facts.as_of) is not None:
        code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    has_metric = facts.broker.version.has_lag_metric
    estimate = sample.estimate(behind) if sample is not None else behind
    if standing.committed is None and has_commits:
        estimate = 0  # The broker takes the end of the queue for an offset that it does not have.
    return Lag(
        **vars(standing),
        behind=behind,
        would_get=waiting.messages if waiting else 0,
        broker_estimate=estimate if has_metric and row is not None and is_measured(row) else None,
        oldest_at=waiting.oldest_at if waiting else None,
        oldest_ms=max(0, facts.as_of - waiting.oldest_at) if waiting else None,
        is_consuming=row is not None and row.is_consuming,
        refusal=code.name if code is not None else None,
    )
