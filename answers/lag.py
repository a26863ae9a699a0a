"""How far each group is behind: by offsets, by the messages that it would receive, and by the broker's own estimate.

A Standing is where a group is in a queue: its committed offset, its position, and the end. :func:`lag` adds what waits:
it runs the group's filter over the entries from the position on, and estimates as the broker's metrics do
(:mod:`filtering.consumption.lag`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from answers.facts import BrokerFacts, GroupQueue
from filtering.consumption.clients import ClientChecks
from filtering.consumption.lag import TopicLag, checked_range, checks_entries, is_measured
from filtering.consumption.offsets import COMMIT_DELAY, REMOVED
from filtering.counted import counted, did_you_mean, listed
from filtering.delivery.message_filter import MessageFilter, message_filter
from filtering.delivery.pull_window import NO_END, OffsetRange, PullWindow
from filtering.frozen import frozen
from filtering.names import retry_topics, subscribed_topic
from filtering.predicate import TRUE
from filtering.pulls import ResponseCode, refusal
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import filtered, group_numbers, least, one_of, tuples, within
from schemas.errors import UsageError, time_text
from schemas.messages.stored_messages import read_entries, stored_ranges
from schemas.tables import CONSUMEQUEUE, CURRENT_OFFSETS

# Why there is no lag.


NAMED = 10
"""The number of topics that a line names; others are counted."""


def check_asked(brokers: Sequence[BrokerFacts], groups: Collection[str] | None, topics: Collection[str] | None) -> None:
    """Raises UsageError for a topic or a group that no broker knows, or that subscribes to none of these topics.

    None stands for all.
    """
    for topic in topics or ():
        _one_passes([partial(facts.check_topic, topic) for facts in brokers])
    for group in groups or ():
        _one_passes([partial(check_subscribed, facts, group, topics) for facts in brokers])


def _one_passes(checks: Sequence[Callable[[], None]]) -> None:
    """Raises the first error of the checks if all fail."""
    errors = []
    for check in checks:
        try:
            return check()
        except UsageError as error:
            errors.append(error)
    raise errors[0]


def check_subscribed(facts: BrokerFacts, group: str, topics: Collection[str] | None) -> None:
    """Raises UsageError for a group that never subscribed, or to none of these topics (None: any)."""
    subscribed = sorted({row.topic for row in facts.subscriptions_of(group)})
    if topics is not None and not set(topics).intersection(subscribed):
        named = ", ".join(topics)
        hint = did_you_mean(named, subscribed) or f"; it subscribes to {_named(subscribed)}"
        raise UsageError(f"{group} has no subscription to {named}{hint}")


def why_without_rows(
    brokers: Sequence[BrokerFacts], groups: Collection[str] | None, topics: Collection[str] | None
) -> str:
    """Why no broker has a row of lag for groups that subscribed, or for topics. None stands for all."""
    history = [row for facts in brokers for row in facts.history]
    rows = [
        row
        for row in history
        if (groups is None or row.consumer_group in groups) and (topics is None or row.topic in topics)
    ]
    with_messages = sorted({topic for facts in brokers for topic in facts.topics})
    absent = sorted({row.topic for row in rows} - set(with_messages))
    if not rows:
        subscribed = sorted({row.topic for row in history})
        return f"no group subscribes to {', '.join(topics or ())}; groups subscribe to {_named(subscribed)}"
    if len(absent) == len({row.topic for row in rows}):
        return f"no message of the log has the topic {_named(absent)}{did_you_mean(absent[0], with_messages)}"
    first, names = min(row.valid_from for row in rows), ", ".join(groups or topics or ())
    return f"no night has filtered messages for {names} yet: the first subscription begins at {time_text(first)}"


def _named(topics: Sequence[str]) -> str:
    return listed(topics, NAMED, "topic") or "nothing"


# Standings.


@frozen
class Standing:
    """Where a group is in a queue, as queue offsets.

    ``committed`` is the offset that the broker stored, None if it has none. ``position`` is where the group
    goes on: a group that keeps up has pulled more than it has committed. ``end``: the offset after the last entry.
    ``filtered_to``: the offset up to which nights have filtered the queue. It is ``end``, unless newer entries are
    known.
    """

    consumer_group: str
    topic: str
    queue_id: int
    committed: int | None
    position: int
    end: int
    filtered_to: int

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def counted_from(self) -> int:
        """The offset from which the broker counts the lag: the committed one, or else where the group goes on."""
        return self.position if self.committed is None else self.committed

    @property
    def ahead(self) -> int:
        """By how many entries the committed offset is beyond the end of the queue; 0 if it is not."""
        return max(0, (self.committed or 0) - self.end)

    @property
    def unfiltered(self) -> int:
        """The number of entries after the last night that the group has yet to pull. No filter has seen them here."""
        return max(0, self.end - max(self.position, self.filtered_to))

    @property
    def is_behind(self) -> bool:
        """Whether the group has entries left to pull or to commit."""
        return min(self.position, self.counted_from) < self.end


def standings(
    facts: BrokerFacts,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    queue_ids: Collection[int] | None = None,
    only_behind: bool = False,
) -> Iterator[Standing]:
    """Where groups are in queues after the last night, or in the newer state of the broker.

    ``groups``, ``topics``, ``queue_ids``: only these. ``only_behind``: only where a group is behind, or beyond the end.
    """
    selected = (("consumer_group", groups), ("topic", topics), ("queue_id", queue_ids))
    where = [one_of(column, values) for column, values in selected if values is not None]
    names = ("consumer_group", "topic", "queue_id", "committed", "decided_to", "queue_end")
    rows = facts.rows(CURRENT_OFFSETS, names, where) if where else facts.offsets
    rows = rows.filter(pc.is_valid(rows["decided_to"]))  # the others have no subscription
    newer = facts.newer
    if only_behind and newer is None:
        differs = (pc.not_equal(rows[name], rows["queue_end"]).fill_null(False) for name in ("decided_to", "committed"))
        rows = rows.filter(pc.or_(*differs))
    for group, topic, queue_id, committed, decided_to, end in tuples(rows, *names):
        position, filtered_to = decided_to or 0, end
        later = newer.committed.get((group, topic), {}).get(queue_id) if newer is not None else None
        if newer is not None and later is not None:
            # Commits lag behind what was pulled: a snapshot of about the same time adds nothing new.
            is_later = newer.at is None or newer.at >= facts.as_of + COMMIT_DELAY
            committed, position = later, later if is_later else max(later, position)
        committed = None if committed == REMOVED else committed
        if newer is not None and newer.ends is not None:
            end = newer.ends.get((topic, queue_id), 0)
            filtered_to = _still_filtered(filtered_to, end)
        standing = Standing(group, topic, queue_id, committed, min(position, end), end, filtered_to)
        if standing.is_behind or standing.ahead or not only_behind:
            yield standing
    for standing in _new_standings(facts, groups, topics):
        if (queue_ids is None or standing.queue_id in queue_ids) and (standing.is_behind or not only_behind):
            yield standing


def _new_standings(
    facts: BrokerFacts, groups: Collection[str] | None, topics: Collection[str] | None
) -> Iterator[Standing]:
    """Where groups are that subscribed after the last night, by the broker that runs."""
    newer = facts.newer
    if newer is None or newer.ends is None:
        return
    names = "consumer_group", "topic", "queue_id", "decided_to", "queue_end"
    known, filtered_to = set(), {}
    for group, topic, queue_id, decided_to, end in tuples(facts.offsets, *names):
        filtered_to[topic, queue_id] = end
        if decided_to is not None:
            known.add((group, topic, queue_id))
    for row in facts.in_force:
        if (groups is None or row.consumer_group in groups) and (topics is None or row.topic in topics):
            for queue_id, committed in newer.committed.get(row.key, {}).items():
                queue = row.topic, queue_id
                end = newer.ends.get(queue)
                has_entries = end or committed  # nights do not count queues that never had a message, either
                if end is not None and has_entries and (*row.key, queue_id) not in known:
                    stored = _still_filtered(filtered_to.get(queue, 0), end)
                    yield Standing(*row.key, queue_id, committed, min(committed, end), end, stored)


def _still_filtered(filtered_to: int, end: int) -> int:
    """Up to where a queue that ends at ``end`` now is filtered: nowhere, if it began again since the last night."""
    return filtered_to if filtered_to <= end else 0


@frozen
class BeyondEnd:
    """The committed offsets of a group are beyond the end of some queues of a topic, at most by ``entries``.

    Its topic was created again, or the broker's store was wiped, and the offsets stayed. Source:
    DefaultMessageStore.getMessage (OFFSET_OVERFLOW_BADLY).
    """

    consumer_group: str
    topic: str
    queues: int
    entries: int

    @property
    def text(self) -> str:
        most = "up to " if self.queues > 1 else ""
        return (
            f"its committed offsets are beyond the end of {counted(self.queues, 'queue')}, by {most}{self.entries:,}: "
            "when it pulls, the broker moves it to the end (OFFSET_OVERFLOW_BADLY), and it never gets the messages "
            "before that"
        )


def beyond_end(rows: Iterable[Standing]) -> list[BeyondEnd]:
    """One for each group and topic with committed offsets beyond the end of a queue, in order."""
    queue_ids: defaultdict[GroupTopic, list[int]] = defaultdict(list)
    for row in rows:
        if row.ahead:
            queue_ids[row.key].append(row.ahead)
    return [BeyondEnd(*key, len(entries), max(entries)) for key, entries in sorted(queue_ids.items())]


def away_beyond_end(facts: BrokerFacts) -> list[BeyondEnd]:
    """:func:`beyond_end` of the groups that do not pull, by the last snapshot.

    A broker corrects the offset of a group that pulls. If it is beyond the end all the same, the log was copied before
    the offsets.
    """
    pulling = {row.key for row in facts.in_force if row.is_consuming}
    return beyond_end(row for row in standings(facts, only_behind=True) if row.key not in pulling)


def positions_in_queue(
    facts: BrokerFacts, groups: Collection[str] | None, topic: str, queue_id: int
) -> Mapping[str, int]:
    """By group, the offset at which it goes on in a queue. ``groups``: the only groups to read; None: all."""
    positions = standings(facts, groups=groups, topics=[topic], queue_ids=[queue_id])
    return {each.consumer_group: each.position for each in positions}


def count_subscriptions(facts: BrokerFacts, topics: Collection[str] | None = None) -> int:
    """The number of groups and topics of which :func:`standings` has any. ``topics``: only these."""
    if facts.newer is not None:
        return len({standing.key for standing in standings(facts, topics=topics)})
    where = [] if topics is None else [one_of("topic", topics)]
    rows = filtered(facts.offsets, where)
    keys, _ = group_numbers(rows.filter(pc.is_valid(rows["decided_to"])), ["consumer_group", "topic"])
    return len(keys)


@frozen
class Lag(Standing):
    """How far a group is behind in a queue. Times are ms.

    ``behind`` is ``end`` minus ``committed`` (or ``position``), as mqadmin shows it. ``would_get`` counts the messages
    from ``position`` to ``filtered_to`` that the group would receive, and ``broker_estimate`` is the broker's metric
    for the same, None if it has none, as no broker before 5.1.0 has, or if entries are ``unfiltered``. ``oldest_at`` is
    when the oldest of these messages was stored, ``oldest_ms`` its age at the end of the last night, or when the broker
    was asked. ``refusal`` is the code with which the broker refuses the group's pulls; such a group receives nothing.

    Of a group that pops, whose ``committed`` offset is that up to which pops have read: ``in_flight`` counts the
    messages that were handed out and not acknowledged, ``in_flight_until`` is when the last of them can be popped
    again, and ``to_be_redelivered`` counts those whose time is over and that are not stored again yet.
    """

    behind: int
    would_get: int
    broker_estimate: int | None
    oldest_at: int | None
    oldest_ms: int | None
    is_consuming: bool
    refusal: str | None
    in_flight: int | None = None
    in_flight_until: int | None = None
    to_be_redelivered: int | None = None

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


FIELDS = (*(each.name for each in fields(Lag)), "estimate_error", "ahead", "unfiltered", "pulls")
"""The names of what JSON and data frames have of each queue."""


def lag_of_brokers(
    brokers: Sequence[BrokerFacts],
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    only_behind: bool = False,
) -> list[tuple[BrokerFacts, list[Lag]]]:
    """The :func:`lag` of each broker.

    Raises UsageError for a group that on no broker subscribed, or to none of these topics, and for an unknown topic.
    """
    check_asked(brokers, groups, topics)
    return [(facts, lag(facts, groups, topics, only_behind)) for facts in brokers]


def lag(
    facts: BrokerFacts,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    only_behind: bool = False,
) -> list[Lag]:
    """A row for each group, topic and queue, in this order, after the last night. ``groups``, ``topics``: only these.

    ``only_behind``: only the queues in which a group is behind, or beyond the end. Filter hooks of clients are not
    applied.
    """
    in_force = dict(_in_force(facts, facts.in_force if groups is None else facts.in_force_of(groups)))
    unacknowledged = open_pops(facts)
    by_topic: defaultdict[str, list[Standing]] = defaultdict(list)
    behind = set()
    for standing in standings(facts, groups, topics, only_behind=only_behind):
        by_topic[standing.topic].append(standing)
        if standing.is_behind:
            behind.add(standing.consumer_group)
    rows_behind = [row for row in in_force.values() if row.consumer_group in behind]
    most_attempts = facts.pop_groups.most_attempts
    filters = {
        row.key: row_filter
        for row in rows_behind
        if (row_filter := message_filter(row, rows_behind, facts.broker, most_attempts(row.consumer_group)))
    }
    firsts = _first_offsets(facts, by_topic)
    counts = {topic: _topic_lag(queues, in_force, filters, firsts, facts) for topic, queues in by_topic.items()}
    _scan(facts, counts)
    has_commits = facts.newer is not None or facts.offsets["committed"].null_count < len(facts.offsets)
    clients = ClientChecks([event for event in facts.events if groups is None or event.group in groups])
    rows = [
        _row(standing, in_force.get(standing.key), counts[topic], has_commits, facts, clients, unacknowledged)
        for topic, queues in by_topic.items()
        for standing in queues
    ]
    return sorted(rows, key=lambda row: (row.consumer_group, row.topic, row.queue_id))


def _in_force(facts: BrokerFacts, rows: Iterable[SubscriptionRow]) -> Iterator[tuple[GroupTopic, SubscriptionRow]]:
    """The subscriptions in force. Those of groups that pop come with each request, and filter retry topics, too."""
    for row in map(facts.as_consumed, rows):
        yield row.key, row
        if row.pops:
            for topic in retry_topics(*row.key):
                yield (row.consumer_group, topic), replace(row, topic=topic)


@dataclass
class OpenPops:
    """The messages in a queue that a group popped and did not acknowledge. ``until``: ms."""

    in_flight: int = 0
    until: int | None = None
    overdue: int = 0


def open_pops(facts: BrokerFacts) -> dict[GroupQueue, OpenPops]:
    """What groups popped and did not acknowledge, by group, topic and queue id. Nothing of a broker that was asked:
    what it wrote down since the last night is not known.
    """
    open_by_queue: defaultdict[GroupQueue, OpenPops] = defaultdict(OpenPops)
    if facts.pops.recorded and not facts.is_live:
        names = ["consumer_group", "topic", "queue_id", "visible_at"]
        for *queue, visible_at in tuples(facts.recorded_pops(names, [one_of("is_open", [True])]), *names):
            pops = open_by_queue[queue[0], queue[1], queue[2]]
            if visible_at > facts.as_of:
                pops.in_flight, pops.until = pops.in_flight + 1, max(visible_at, pops.until or 0)
            else:
                pops.overdue += 1
    return dict(open_by_queue)


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
        key, queue_id, end = standing.key, standing.queue_id, standing.filtered_to
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
                physical_ranges=facts.physical_ranges(key[1], offsets),
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
    offsets = max(begin, facts.last.log_start or 0), NO_END
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
    firsts = np.array([from_offsets.get(key, NO_END) for key in keys], np.int64)
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
    unacknowledged: Mapping[GroupQueue, OpenPops],
) -> Lag:
    """``has_commits``: whether a snapshot had committed offsets."""
    waiting = counts.waiting_of(standing.consumer_group, standing.queue_id)
    behind = max(0, standing.end - standing.counted_from)
    sample = counts.sample_of(standing.consumer_group, standing.queue_id)
    code = refusal(row, facts.broker) if row is not None else None
    if code is None and clients.without_subscription(*standing.key, facts.as_of) is not None:
        code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    has_metric = facts.broker.version.has_lag_metric
    group, topic = standing.key
    pops = unacknowledged.get((group, topic, standing.queue_id), OpenPops())
    has_recorded_pops = (group, subscribed_topic(group, topic)) in facts.pops.recorded and not facts.is_live
    estimate = sample.estimate(behind) if sample is not None else behind
    can_estimate = standing.end == standing.filtered_to or standing.counted_from >= standing.end
    if standing.committed is None and has_commits:
        estimate = 0  # The broker takes the end of the queue for an offset that it does not have.
    return Lag(
        **vars(standing),
        behind=behind,
        would_get=waiting.messages if waiting else 0,
        broker_estimate=estimate if has_metric and can_estimate and row is not None and is_measured(row) else None,
        oldest_at=waiting.oldest_at if waiting else None,
        oldest_ms=max(0, facts.asked_at - waiting.oldest_at) if waiting else None,
        is_consuming=row is not None and row.is_consuming,
        refusal=code.name if code is not None else None,
        in_flight=pops.in_flight if has_recorded_pops else None,
        in_flight_until=pops.until,
        to_be_redelivered=pops.overdue if has_recorded_pops else None,
    )
