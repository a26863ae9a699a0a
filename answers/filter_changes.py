"""The effect of changed filters: what they would have delivered, compared with what was delivered.

The windows are those of the nights, or what pops read by the broker's own record; only the filter changes. So of each
topic, DeliveryHistory has what its groups pulled, received and wait for, and makes a FilterChange for each changed
filter: all that workers need. FilterChanges asks the old and the new filters in one pass over the entries of the
period, and returns a ChangeEffect for each change: counts, and the messages that it gains and loses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Self

import numpy as np
import pyarrow as pa

from answers.facts import BrokerFacts
from answers.pull_history import EntriesOfNights, Flags, NightsOfLog, WindowOfNight, popped_ranges, read_windows
from filtering.delivery import Outcome, topic_filters
from filtering.delivery.entries import Entries, Int32s, Int64s, among
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import NO_END, PULLED, OffsetRange, PullWindow, WindowKind
from filtering.delivery.topic_filters import TopicFilters
from filtering.frozen import frozen
from filtering.subscriptions.events import GroupTopic
from filtering.time_spans import BEGINNING, DAY
from schemas.arrow_batches import schema_of
from schemas.deliveries import DELIVERY_BLOCKS, pairs_of
from schemas.delta.table_rows import (
    Key,
    Where,
    files_that_may_hold,
    least,
    one_of,
    positions_by,
    row_groups,
    tuples,
    within,
)
from schemas.spark_tasks import run_in_threads
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE, CURRENT_OFFSETS

Period = tuple[int, int]
"""Store times, ms, the second exclusive."""
CHANGED = schema_of("queue_id int32, queue_offset int64, commitlog_offset int64, store_timestamp int64")
"""One row for each message that a group would gain or lose by a change; times in ms."""
QueueDay = tuple[int, int]
"""A day (UTC, days since the epoch) and a queue id."""
NOT_RECEIVED = Outcome.DROPPED_BY_HOOK, Outcome.DEAD, Outcome.DENIED
"""Outcomes of messages that no other filter would bring: hooks would drop them again, they were given up, or the
client's traces say that it did not get them."""
_NO_BIT_MAP = 0


@frozen(eq=False)
class PulledMessages:
    """The messages of a topic that a group pulled: those that ``windows`` cover.

    The group has also pulled all messages of the queues that ``known_queues`` does not list; None: it lists all.
    """

    log: NightsOfLog
    windows: Sequence[WindowOfNight]
    known_queues: Collection[int] | None = None

    def among(self, entries: EntriesOfNights) -> Flags:
        """Whether the group pulled each of some entries."""
        known = entries.queue_ids if self.known_queues is None else list(self.known_queues)
        pulled: Flags = ~np.isin(entries.queue_ids, known)[entries.queue_of]
        for night, window in self.windows:
            covered = entries.covered_by(night, window)
            if covered is not None:
                pulled |= covered
        return pulled


@frozen(eq=False)
class FilterChange:
    """A changed filter of a group.

    ``received`` are the physical offsets of the messages that the group received, ``not_received`` of those that it
    pulled and did not receive, whatever its filter (NOT_RECEIVED); both ascending. ``pulled``: what the group has
    pulled; None: all. By queue id, ``pending`` has the offsets that it has yet to pull, of the entries with physical
    offsets in ``physical_ranges``, in queues that began again.
    ``in_force`` is the group's filter in force; None: it has none, or the broker refuses its pulls.
    """

    filter: MessageFilter
    received: Int64s
    not_received: Int64s
    pulled: PulledMessages | None = None
    pending: Mapping[int, OffsetRange] = field(default_factory=dict)
    in_force: MessageFilter | None = None
    physical_ranges: Mapping[int, OffsetRange] = field(default_factory=dict)


@dataclass
class _Counts:
    """Counts that are added one by one."""

    def __iadd__(self, other: Self) -> Self:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self


@dataclass
class ChangeCounts(_Counts):
    """The counts of a changed filter. Only messages of the period count.

    ``stored``: entries of the topic; ``scanned``: those that the group pulled; ``passed_stage1``: of these, those that
    pass by their tags code (the filter bit map is not used); ``failed``: messages on which the expression fails;
    ``pending``: messages that match and that the group has yet to pull, which no other count includes.
    """

    stored: int = 0
    scanned: int = 0
    passed_stage1: int = 0
    failed: int = 0
    pending: int = 0


@dataclass
class AgainstInForce(_Counts):
    """Messages that a change itself gains and loses: compared with the filter in force, as if it had always been.

    The filter in force would itself gain ``same_gains`` of the gained messages, and lose ``same_losses`` of the lost
    ones: the group pulled them under an earlier filter, or the broker deleted them before.
    """

    gained: int = 0
    lost: int = 0
    same_gains: int = 0
    same_losses: int = 0


@dataclass(eq=False)
class ChangeEffect:
    """What a changed filter does: its counts, and the messages that it gains and loses, as rows of CHANGED.

    ``kept`` counts the messages that it keeps, by queue and day. If no filter is in force, all counts of
    ``against_in_force`` are 0.
    """

    counts: ChangeCounts = field(default_factory=ChangeCounts)
    against_in_force: AgainstInForce = field(default_factory=AgainstInForce)
    kept: Counter[QueueDay] = field(default_factory=Counter)
    gained: list[pa.RecordBatch] = field(default_factory=list)
    lost: list[pa.RecordBatch] = field(default_factory=list)

    def __iadd__(self, other: ChangeEffect) -> ChangeEffect:
        self.counts += other.counts
        self.against_in_force += other.against_in_force
        self.kept.update(other.kept)
        self.gained += other.gained
        self.lost += other.lost
        return self


def by_queue_and_day(queue_id: Int32s, store_timestamp: Int64s) -> Counter[QueueDay]:
    """The number of messages for each queue and day."""
    keys, counts = np.unique(np.stack([store_timestamp // DAY, queue_id]), axis=1, return_counts=True)
    return Counter(dict(zip(zip(*keys.tolist(), strict=True), counts.tolist(), strict=True)))


class FilterChanges:
    """Compares changed filters with deliveries. Picklable, so that Spark can send it to its workers."""

    def __init__(self, changes: Sequence[FilterChange], period: Period) -> None:
        """``period``: only messages stored in it count."""
        self._count = len(changes)
        self._by_topic = {
            topic: _ChangesOfTopic(
                [(i, change) for i, change in enumerate(changes) if change.filter.topic == topic], period
            )
            for topic in {change.filter.topic for change in changes}
        }

    @property
    def properties(self) -> dict[str, tuple[str, ...]]:
        """The message properties that are read, by topic."""
        return {topic: topic_changes.filters.properties for topic, topic_changes in self._by_topic.items()}

    def __call__(self, blocks: Iterable[Entries]) -> list[ChangeEffect]:
        """The effect of each change on some entries."""
        effects = [ChangeEffect() for _ in range(self._count)]
        for entries in blocks:
            self._by_topic[entries.topic].compare(entries, effects)
        return effects


class _ChangesOfTopic:
    """The changes of one topic, each with its number among all changes. They run as pull windows of one TopicFilters.

    The windows are, in this order and each for all changes: the new filter on what the group has pulled, on what it has
    yet to pull, and on all messages; then, for changes with a filter in force, this one on all messages.
    """

    def __init__(self, numbered: Sequence[tuple[int, FilterChange]], period: Period) -> None:
        self._numbered = numbered
        self._period = period
        changes = [change for _, change in numbered]
        windows = [_window(filter_change.filter, period, {}, False, {}) for filter_change in changes]
        pending_windows = [
            _window(filter_change.filter, period, filter_change.pending, True, filter_change.physical_ranges)
            for filter_change in changes
        ]
        in_force = [
            _window(filter_change.in_force, period, {}, False, {})
            for filter_change in changes
            if filter_change.in_force is not None
        ]
        self.filters = TopicFilters(_NO_BIT_MAP, windows=[*windows, *pending_windows, *windows, *in_force])

    def compare(self, entries: Entries, effects: Sequence[ChangeEffect]) -> None:
        """Adds the effects on a block to those of all changes."""
        place = entries.queue_id, entries.queue_offset, entries.commitlog_offset, entries.store_timestamp
        in_nights = cache(lambda log: log.entries(*place))
        all_pulled = {
            window: change.pulled.among(in_nights(change.pulled.log))
            for window, (_, change) in enumerate(self._numbered)
            if change.pulled is not None
        }
        block = self.filters.run(entries, all_pulled)
        matched = block.delivered.flags(self.filters.window_count)
        in_time = (entries.store_timestamp >= self._period[0]) & (entries.store_timestamp < self._period[1])
        change_flags, flags_in_force = np.split(matched, [3 * len(self._numbered)])
        in_force = iter(flags_in_force)
        for window, (number, change) in enumerate(self._numbered):
            pulled, pending, matches = change_flags[window :: len(self._numbered)]
            received = among(entries.commitlog_offset, change.received) & in_time
            not_received = among(entries.commitlog_offset, change.not_received)
            kept, gained, lost = received & matches, pulled & ~received & ~not_received, received & ~matches
            counts = ChangeCounts(
                stored=int(in_time.sum()),
                scanned=int(block.scanned[block.mask_of[window]].sum()),
                passed_stage1=int(block.counts[window, :, topic_filters.PASSED_STAGE1].sum()),
                failed=int(block.counts[window, :, topic_filters.EVALUATION_ERRORS].sum()),
                pending=int(pending.sum()),
            )
            against_in_force = AgainstInForce()
            if change.in_force is not None:
                before = next(in_force) & (all_pulled.get(window, np.True_) | received)
                after = pulled | kept
                against_in_force = AgainstInForce(
                    gained=int((after & ~before & ~not_received).sum()),
                    lost=int((before & ~after & ~not_received).sum()),
                    same_gains=int((gained & before).sum()),
                    same_losses=int((lost & ~before).sum()),
                )
            effects[number] += ChangeEffect(
                counts,
                against_in_force,
                by_queue_and_day(entries.queue_id[kept], entries.store_timestamp[kept]),
                _changed_rows(entries, gained),
                _changed_rows(entries, lost),
            )


def _changed_rows(entries: Entries, flags: Flags) -> list[pa.RecordBatch]:
    """The flagged entries as rows of CHANGED; no batch if there are none."""
    if not flags.any():
        return []
    columns = [pa.array(getattr(entries, name)[flags]) for name in CHANGED.names]
    return [pa.RecordBatch.from_arrays(columns, schema=CHANGED)]


def _window(
    message_filter: MessageFilter,
    period: Period,
    offsets: Mapping[int, OffsetRange],
    only_listed: bool,
    physical_ranges: Mapping[int, OffsetRange],
) -> PullWindow:
    return PullWindow(message_filter, BEGINNING, *period, None, offsets, only_listed, physical_ranges).without_bit_map


# What groups pulled and received, and what waits for them.


class DeliveryHistory:
    """The messages of some topics that groups pulled, those that they received, and those that wait for them."""

    def __init__(self, facts: BrokerFacts, keys: Collection[GroupTopic], period: Period) -> None:
        """Also reads other pairs of these groups and topics."""
        self._facts = facts
        self._period = period
        groups, topics = {group for group, _ in keys}, {topic for _, topic in keys}
        self._by_outcome = _by_outcome(facts, groups, topics, period)
        self._log = cache(partial(NightsOfLog.of_topic, facts))
        self._first_kept = cache(self._read_first_kept)
        self._windows = read_windows(facts, groups, topics)
        self._popped = popped_ranges(
            facts, [key for key in facts.pops.recorded if key[0] in groups and key[1] in topics]
        )
        self._queues: defaultdict[GroupTopic, list[tuple[int, int | None, int]]] = defaultdict(list)
        where = [one_of("topic", topics), one_of("consumer_group", groups)]
        columns = ["consumer_group", "topic", "queue_id", "decided_to", "queue_end"]
        for group, topic, *queue in tuples(facts.rows(CURRENT_OFFSETS, columns, where), *columns):
            self._queues[group, topic].append((*queue,))

    def change(self, new: MessageFilter, in_force: MessageFilter | None) -> FilterChange:
        """The change to another filter of a group. ``in_force``: as in :class:`FilterChange`."""
        pending = self._pending(new.key)
        return FilterChange(
            filter=new,
            # Traces may deny what an earlier night took for received.
            received=np.setdiff1d(self._with(new.key, Outcome.DELIVERED), self._with(new.key, Outcome.DENIED), True),
            not_received=self._with(new.key, *NOT_RECEIVED),
            pulled=self._pulled(new.key),
            pending=pending,
            in_force=in_force,
            physical_ranges=self._facts.physical_ranges(new.topic, pending),
        )

    def _with(self, key: GroupTopic, *outcomes: Outcome) -> Int64s:
        """The physical offsets of the messages with one of some outcomes: ascending, each once."""
        parts = [self._by_outcome[*key, outcome] for outcome in outcomes if (*key, outcome) in self._by_outcome]
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate([_NOTHING, *parts]))

    def _pulled(self, key: GroupTopic) -> PulledMessages:
        """What a group pulled of a topic. It counts as having pulled all of a queue in which it has no offset."""
        begin, end = self._period
        windows = [
            (night, window)
            for night, window in self._windows.get(key, ())
            if window.kind in PULLED and window.stored_from < end and begin < window.stored_to
        ]
        if key in self._popped:
            ranges = self._popped[key]
            popped = PullWindow(
                MessageFilter(*key),
                BEGINNING,
                offsets=ranges,
                only_listed=True,
                physical_ranges=self._facts.physical_ranges(key[1], ranges),
                kind=WindowKind.BACKLOG,
            )
            windows.append((len(self._facts.nights) - 1, popped))
        return PulledMessages(self._log(key[1]), windows, [queue_id for queue_id, *_ in self._queues[key]])

    def _pending(self, key: GroupTopic) -> Mapping[int, OffsetRange]:
        """The offsets that a group has yet to pull, by queue id. Messages that the broker deleted are not pending."""
        pending: dict[int, OffsetRange] = {}
        for queue_id, decided_to, end in self._queues[key]:
            begin = decided_to or 0
            pending[queue_id] = (max(begin, self._kept_from(key[1], queue_id)) if begin < end else begin, NO_END)
        return pending

    def _kept_from(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue whose message is still in the broker's log."""
        return self._first_kept(topic).get((queue_id,), NO_END) if self._facts.last.log_start else 0

    def _read_first_kept(self, topic: str) -> Mapping[Key, int]:
        """These offsets of a topic, by queue id (a tuple of one)."""
        kept = [one_of("topic", [topic]), within("commitlog_offset", self._facts.last.log_start)]
        return least(self._facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset"], kept), ["queue_id"], "queue_offset")


_NOTHING = np.empty(0, np.int64)
_GroupTopicOutcome = tuple[str, str, str]
"""Consumer group, topic and outcome."""


def _by_outcome(
    facts: BrokerFacts, groups: set[str], topics: set[str], period: Period
) -> dict[_GroupTopicOutcome, Int64s]:
    """By outcome, the physical offsets of what some groups received of some topics, or did not: ascending, each once.

    Read file by file: of a pair, only its offset stays in memory.
    """
    where = [
        one_of("topic", topics),
        within("first_store_timestamp", below=period[1]),
        within("last_store_timestamp", low=period[0]),
    ]
    files = files_that_may_hold(facts.warehouse.files(DELIVERY_BLOCKS, facts.name), where)
    in_file = partial(_by_outcome_in_file, facts.warehouse.log(DELIVERY_BLOCKS).storage, where=where, groups=groups)
    offsets: defaultdict[_GroupTopicOutcome, list[Int64s]] = defaultdict(list)
    for parts in run_in_threads([file.path for file in files], in_file):
        for key, part in parts:
            offsets[key].append(part)
    return {key: np.unique(np.concatenate(parts)) for key, parts in offsets.items()}


def _by_outcome_in_file(
    storage: Storage, path: str, where: Where, groups: set[str]
) -> list[tuple[_GroupTopicOutcome, Int64s]]:
    columns = ["topic", "messages", "commitlog_offset", "matches"]
    outcomes = Outcome.DELIVERED, *NOT_RECEIVED
    return [
        (key, batch["commitlog_offset"].to_numpy()[at])
        for blocks in row_groups(DELIVERY_BLOCKS, storage, path, columns, where)
        for batch in pairs_of(blocks, groups, outcomes)
        for key, at in positions_by(pa.table(batch), ["consumer_group", "topic", "outcome"])
    ]
