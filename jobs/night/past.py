"""What earlier nights of a broker left in the tables.

BrokerState is the state after its last night: how far the log was read, and each group's offsets. The next night begins
from it. PastNight is an earlier night, to be repeated or planned again: its messages, and the offsets that its snapshot
had (PastOffsets). Late messages are filtered with the windows of their own night (:func:`late_windows`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property, partial
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import (
    NO_QUEUES,
    REMOVED,
    BrokerOffsets,
    Offsets,
    OffsetsSoFar,
    QueueRestart,
    TopicOffsets,
    offset_by_time,
)
from filtering.consumption.plan import plan_night
from filtering.delivery.entries import has_entry
from filtering.delivery.message_filter import NightFilters
from filtering.delivery.pull_window import PullWindow, WindowKind
from filtering.frozen import frozen
from filtering.pops.modes import PopGroups, PopModes
from filtering.sql92 import Expressions
from filtering.subscriptions.events import GroupTopic, SubscriptionEvent, with_offsets
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, FOREVER
from jobs.night.commit import Changes
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import filtered, greatest, one_of, sorted_by, tuples, within
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_messages import PhysicalRange
from schemas.pull_windows import PULL_WINDOWS, planned_windows, window_rows
from schemas.run_ledger import (
    COMMITTED_AT,
    IN_DATABASE,
    IS_ESTIMATED,
    NOT_COMMITTED,
    POP_MODES,
    QUEUES,
    WATCHED_TO,
    LedgerEntry,
    earlier_configs,
    filtered_to,
    first_beyond,
    nights_of,
    unreplaced_runs,
)
from schemas.subscriptions import read_events
from schemas.tables import CONSUMEQUEUE, CONSUMER_OFFSETS, CURRENT_OFFSETS, IN_LMQS, QUEUE_PROGRESS


@frozen
class BrokerState:
    """The state of a broker after its last night.

    ``entries``: the ledger entries of the broker. ``topics``: offsets by topic. ``events``: all applied subscription
    events. ``read_progress`` reads the rows of queue_progress.
    """

    entries: Sequence[LedgerEntry]
    topics: dict[str, TopicOffsets] = field(default_factory=dict)
    events: tuple[SubscriptionEvent, ...] = ()
    read_progress: Callable[[], pa.Table] = QUEUE_PROGRESS.file_schema.empty_table

    @property
    def last(self) -> LedgerEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def first_undelivered(self) -> str | None:
        """The first run after the last one that delivered messages; None if there is none."""
        undelivered = takewhile(lambda entry: not entry.delivers, reversed(self.entries))
        return min((entry.run for entry in undelivered), default=None)

    @cached_property
    def nights(self) -> Sequence[LedgerEntry]:
        """The entries of runs whose deliveries are in the tables."""
        return nights_of(unreplaced_runs(self.entries))

    def first_run(self, index: int) -> str:
        """The first run of a night: that of its first step, or its own."""
        before = self.nights[index - 1].run if index else ""
        return next(entry.run for entry in unreplaced_runs(self.entries) if entry.run > before)

    @property
    def filtered_to(self) -> int:
        """The physical offset up to which the last night filtered messages."""
        return filtered_to(self.nights)

    @property
    def has_queue_ids(self) -> bool:
        """Whether the messages so far have real queue ids."""
        return self.last is None or self.last.has_queue_ids

    @property
    def config(self) -> BrokerConfig | None:
        """The broker's configuration in the last night."""
        return self.nights[-1].broker if self.nights else None

    def history(
        self, events: Iterable[SubscriptionEvent], broker: BrokerConfig, expressions: Expressions
    ) -> list[SubscriptionRow]:
        """The history of subscriptions after some events, for a night after these with the configuration ``broker``."""
        return subscription_history(events, broker, expressions, earlier_configs(self.nights))

    @property
    def pop_modes(self) -> PopModes:
        """When groups are known to pop, up to the last night."""
        text = self.last.inputs.get(POP_MODES) if self.last else None
        return PopModes() if text is None else PopModes.from_text(text)

    @property
    def as_of(self) -> int | None:
        """The end of the last night, ms."""
        return self.last.as_of if self.last else None

    @property
    def offsets(self) -> OffsetsSoFar:
        last_stored = self.last.last_stored if self.last else None
        log_start = self.nights[-1].log_start if self.nights else None
        return OffsetsSoFar(self.as_of, self.topics, last_stored, self._began_at, log_start, self._may_have_first)

    @cached_property
    def _began_at(self) -> dict[tuple[str, int], int]:
        """By topic and queue id, when a queue began again (ms), if it did."""
        if not any(known.begins.any() for known in self.topics.values()):
            return {}
        return {(topic, each.queue_id): each.at for topic, each in _restarts(self._present_progress)}

    def _may_have_first(self, topic: str, queue_id: int) -> bool:
        """Whether a queue may have had its first message when the last night ended: the log had some of its night."""
        if (topic, queue_id) not in self._first_entries:
            return True
        first, run = self._first_entries[topic, queue_id]
        gone = first_beyond(self.nights, self.nights[-1].log_start or 0)
        return first == 0 and (gone == 0 or run > self.nights[gone - 1].run)

    @cached_property
    def _first_entries(self) -> dict[tuple[str, int], tuple[int, str]]:
        """By queue that the last night knew, the first offset that is in the tables, and its run."""
        last = self.nights[-1].run if self.nights else ""
        rows = tuples(self._present_progress, "topic", "queue_id", "from_offset", "run")
        found = [row for row in rows if row[3] <= last]
        return {(topic, queue_id): (first, run) for topic, queue_id, first, run in reversed(found)}

    @cached_property
    def progress(self) -> pa.Table:
        """Rows of queue_progress in the order of the runs. Only backlogs need them, so they are read on demand."""
        return sorted_by(self.read_progress(), "run")

    @cached_property
    def _present_progress(self) -> pa.Table:
        """The rows of present queues: not of those that ended, or that dispatch has found since the last night."""
        begins = {
            (topic, queue_id): begin
            for topic, known in self.topics.items()
            for queue_id, begin in known.begins_by_queue.items()
        }
        rows = tuples(self.progress, "topic", "queue_id", "begins_at")
        present = [begins.get((topic, queue), 0) == (begin or 0) for topic, queue, begin in rows]
        return self.progress.filter(pa.array(present, pa.bool_()))

    def restarts_since(self, before: BrokerState) -> dict[str, list[QueueRestart]]:
        """By topic, how queues began again since an earlier state: the last restart of each."""
        restarts: defaultdict[str, list[QueueRestart]] = defaultdict(list)
        for topic, restart in _restarts(self.progress):
            begin_now, begin_then = (state.offsets.begins(topic).get(restart.queue_id) for state in (self, before))
            if begin_now == restart.commitlog_offset != begin_then:
                restarts[topic].append(restart)
        return dict(restarts)

    def first_run_with(self, topic: str, queue_id: int, offset: int) -> str | None:
        """The first run with an entry of the present queue at or after a queue offset; None if no run has one."""
        ends, runs = self._runs.get((topic, queue_id), ([], []))
        at = bisect_right(ends, offset)
        return runs[at] if at < len(runs) else None

    @cached_property
    def _runs(self) -> dict[tuple[str, int], tuple[list[int], list[str]]]:
        """By queue: the end offsets of the runs' entries, and the runs."""
        runs_by_queue: defaultdict[tuple[str, int], tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
        for topic, queue_id, end, run in tuples(self._present_progress, "topic", "queue_id", "to_offset", "run"):
            ends, runs = runs_by_queue[topic, queue_id]
            ends.append(max(end, ends[-1] if ends else 0))  # a message log may grow in the middle
            runs.append(run)
        return runs_by_queue


def read_state(warehouse: Warehouse, entries: Sequence[LedgerEntry]) -> BrokerState:
    if not entries:
        return BrokerState(())
    name = entries[0].broker_name
    rows = warehouse.rows_of(name, CURRENT_OFFSETS)
    queues = _queues(rows, "queue_end")
    offsets = rows.filter(pc.is_valid(rows["consumer_group"]))
    return BrokerState(
        entries,
        _topic_offsets(offsets, queues),
        read_events(warehouse, name),
        lambda: warehouse.rows_of(name, QUEUE_PROGRESS),
    )


def read_state_before(warehouse: Warehouse, entries: Sequence[LedgerEntry], run: str) -> BrokerState:
    """The state before a run of a broker, from the history of offsets."""
    name = entries[0].broker_name
    earlier = [within("run", below=run)]
    progress = warehouse.rows_of(name, QUEUE_PROGRESS, where=earlier)
    offsets = warehouse.rows_of(name, CONSUMER_OFFSETS, where=earlier)
    return BrokerState(
        [entry for entry in entries if entry.run < run],
        _topic_offsets(offsets, _queues(progress, "to_offset")),
        read_events(warehouse, name),
        lambda: progress,
    )


def _queues(rows: pa.Table, column: str) -> dict[str, TopicOffsets]:
    """The queues of each topic, without groups. ``column``: that of the ends."""
    by_queue = ["topic", "queue_id"]
    begins_at = rows["begins_at"].fill_null(0)
    begins = greatest(rows.select(by_queue).append_column("begins_at", begins_at), by_queue, "begins_at")
    if any(begins.values()):
        begin_of = [begins[queue] for queue in tuples(rows, *by_queue)]
        rows = rows.filter(pa.array(begins_at.to_numpy() == np.array(begin_of, np.int64)))
    by_topic: defaultdict[str, tuple[dict[int, int], dict[int, int]]] = defaultdict(lambda: ({}, {}))
    for (topic, queue_id), end in greatest(rows, by_queue, column).items():
        by_topic[topic][0][queue_id], by_topic[topic][1][queue_id] = end, begins[topic, queue_id]
    return {topic: TopicOffsets.empty(ends, (), values) for topic, (ends, values) in by_topic.items()}


def _restarts(progress: pa.Table) -> Iterator[tuple[str, QueueRestart]]:
    """The restarts of queues that some rows of queue_progress have, in the order of time, each with its topic."""
    for row in sorted_by(progress.filter(pc.is_valid(progress["began_at"])), "began_at").to_pylist():
        yield row["topic"], QueueRestart(row["queue_id"], row["begins_at"], row["began_at"], row["ended_at"])


def _topic_offsets(rows: pa.Table, queues: dict[str, TopicOffsets]) -> dict[str, TopicOffsets]:
    """The last offsets of each group and queue. Of both kinds, a row may have only one."""
    rows = sorted_by(rows, "run").combine_chunks()
    topics = rows["topic"].combine_chunks().dictionary_encode()
    offsets = dict(queues)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        topic_rows = rows.filter(pa.array(topics.indices.to_numpy() == code))
        known = queues.get(topic, NO_QUEUES)
        # Consumers may commit an offset in a queue without messages.
        topic_rows = topic_rows.filter(pa.array(np.isin(topic_rows["queue_id"].to_numpy(), list(known.queue_ids))))
        groups = topic_rows["consumer_group"].combine_chunks().dictionary_encode()
        known = known.extended(known.ends_by_queue, groups.dictionary.to_pylist(), known.begins_by_queue)
        columns = np.searchsorted(known.queue_ids, topic_rows["queue_id"].to_numpy())
        rows_of_groups = groups.indices.to_numpy()
        for name, last in (("decided_to", known.decided_to), ("committed", known.committed)):
            is_valid = topic_rows[name].is_valid().to_numpy()
            # NumPy keeps the last of several values for one index.
            last[rows_of_groups[is_valid], columns[is_valid]] = topic_rows[name].drop_null().to_numpy()
        offsets[topic] = known
    return offsets


# Committed offsets that earlier snapshots had and a later one has not, as its ledger entry records them.
#
# Tables have a committed offset when it changes. What a snapshot lacks did not change: its copy may be incomplete.


_ALL = "all"
"""Instead of a list: the snapshot has no committed offsets."""


def vanished_text(before: Mapping[str, TopicOffsets], now: Mapping[GroupTopic, Offsets]) -> str:
    """The committed offsets that were known ``before``, by topic, and are not in a snapshot, as JSON."""
    if not now:
        return json.dumps(_ALL)
    vanished = []
    for topic, offsets in before.items():
        for group, row in offsets.groups.items():
            present = now.get((group, topic), {})
            known = (offsets.queue_ids[i] for i in np.flatnonzero(offsets.committed[row] >= 0).tolist())
            vanished += [(topic, group, queue_id) for queue_id in known if queue_id not in present]
    return json.dumps(vanished)


def without_vanished(known: Mapping[GroupTopic, Offsets], text: str) -> dict[GroupTopic, Offsets]:
    """The committed offsets of a snapshot: those that are ``known`` from it and from earlier ones, without ``text``."""
    listed = json.loads(text)
    if listed == _ALL:
        return {}
    vanished = {(group, topic, queue_id) for topic, group, queue_id in listed}
    present = {
        (group, topic): {queue_id: at for queue_id, at in queues.items() if (group, topic, queue_id) not in vanished}
        for (group, topic), queues in known.items()
    }
    return {key: queues for key, queues in present.items() if queues}


# Earlier nights.


QUEUE_COLUMNS = ["topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "sys_flag"]
"""The columns of commitlog from which queues are computed."""


def with_lmqs(messages: pa.Table, entries: pa.Table) -> pa.Table:
    """Messages as QUEUE_COLUMNS, with those of LMQs: ``entries`` of consumequeue."""
    in_lmqs = entries.select(QUEUE_COLUMNS[:-1]).append_column("sys_flag", pa.nulls(len(entries), pa.int32()))
    return pa.concat_tables([messages, in_lmqs.cast(messages.schema)])


@frozen
class PastNight:
    """An earlier night. ``stored_range``: where its messages are in the log."""

    entry: LedgerEntry
    stored_range: PhysicalRange
    offsets: BrokerOffsets


def past_nights(nights: Sequence[LedgerEntry], indices: range, changes: Changes) -> Iterator[PastNight]:
    """The nights with these indices. Their rows must still be in the tables."""
    offsets = PastOffsets(changes)
    for index in indices:
        entry = nights[index]
        stored_range = filtered_to(nights[:index]), filtered_to(nights[: index + 1])
        yield PastNight(entry, stored_range, offsets.of(entry))


class PastOffsets:
    """The offsets that earlier nights knew from the snapshots of their stores."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def committed(self, entry: LedgerEntry) -> dict[GroupTopic, Offsets]:
        """The committed offsets at the end of a night, by group and topic, then by queue id."""
        return without_vanished(self._committed_up_to(entry.run), entry.inputs.get(NOT_COMMITTED, "[]"))

    def of(self, entry: LedgerEntry) -> BrokerOffsets:
        """The offsets at the end of a night."""
        read_queues = entry.read_queues
        if entry.log_start is None:
            return BrokerOffsets(read_queues=read_queues, has_queue_ids=entry.has_queue_ids)  # it read a message log
        at, watched_to = entry.inputs.get(COMMITTED_AT), entry.inputs.get(WATCHED_TO)
        committed = BrokerOffsets(
            self.committed(entry),
            int(at) if at else None,
            read_queues=read_queues,
            log_start=entry.log_start,
            is_estimated=bool(entry.inputs.get(IS_ESTIMATED)),
            in_files=not entry.inputs.get(IN_DATABASE),
            watched_to=int(watched_to) if watched_to else None,
        )
        if entry.inputs.get(QUEUES) == "0":
            return committed
        end = entry.dispatched_to or 0
        min_offsets = self._queues.min_offsets(entry.log_start, end)
        return replace(
            committed,
            min_offsets=min_offsets,
            stored_at=self._queues.stored_at_before(end),
        )

    @cached_property
    def _queues(self) -> StoredQueues:
        entries = self._changes.rows(CONSUMEQUEUE, QUEUE_COLUMNS[:-1], [IN_LMQS])
        return StoredQueues(with_lmqs(self._changes.rows(COMMITLOG, QUEUE_COLUMNS), entries))

    @cached_property
    def _committed(self) -> pa.Table:
        """The rows of consumer_offsets with a committed offset, in the order of the runs."""
        rows = self._changes.rows(CONSUMER_OFFSETS)
        return sorted_by(rows.filter(pc.is_valid(rows["committed"])), "run")

    def _committed_up_to(self, run: str) -> dict[GroupTopic, dict[int, int]]:
        """The last committed offsets in runs up to ``run``, by group and topic, then by queue id."""
        committed: defaultdict[GroupTopic, dict[int, int]] = defaultdict(dict)
        rows = self._committed.filter(pc.less_equal(self._committed["run"], run))
        for group, topic, queue_id, offset in tuples(rows, "consumer_group", "topic", "queue_id", "committed"):
            committed[group, topic][queue_id] = offset
        present = {
            key: {queue_id: at for queue_id, at in queues.items() if at != REMOVED} for key, queues in committed.items()
        }
        return {key: queues for key, queues in present.items() if queues}


class StoredQueues:
    """The queues of a broker, computed from ``rows`` of commitlog with QUEUE_COLUMNS."""

    def __init__(self, rows: pa.Table) -> None:
        names = QUEUE_COLUMNS[:-1]
        # Prepared and rolled back messages have no entry; their queue offset is always 0.
        rows = rows.filter(has_entry(rows["sys_flag"].fill_null(0).to_numpy()))
        self._queues: dict[tuple[str, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        grouped = sorted_by(rows, "topic", "queue_id", "commitlog_offset")
        if not len(grouped):
            return
        topics = grouped["topic"].combine_chunks().dictionary_encode()
        queue_ids = grouped["queue_id"].to_numpy()
        arrays = [grouped[name].to_numpy() for name in names[2:]]
        ends_queue = (np.diff(topics.indices) != 0) | (np.diff(queue_ids) != 0)
        begins = [0, *(np.flatnonzero(ends_queue) + 1).tolist()]
        for begin, end in zip(begins, [*begins[1:], len(grouped)], strict=True):
            offsets, at, times = (array[begin:end] for array in arrays)
            self._queues[topics[begin].as_py(), int(queue_ids[begin])] = offsets, at, times

    def offsets_by_time(self, topic: str, to: int, at: int, log_start: int) -> dict[int, int]:
        """By queue id, the offsets that a reset at ``at`` (ms) to the time ``to`` (ms) sets, with this log."""
        offset_of_queue = {}
        for (name, queue_id), (offsets, places, times) in self._queues.items():
            count = int(np.sum(times < at)) if name == topic else 0
            if count:
                begin = int(np.flatnonzero(offsets[:count] == 0)[-1]) if (offsets[:count] == 0).any() else 0
                known = np.where(places[begin:count] < log_start, -1, times[begin:count])
                place = offset_by_time(known.__getitem__, 0, len(known), to)
                offset_of_queue[queue_id] = int(
                    offsets[begin + place] if place < len(known) else offsets[count - 1] + 1
                )
        return offset_of_queue

    def _present(self, queue: tuple[str, int], log_end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The entries of a queue before ``log_end``, since it began again at offset 0 for the last time."""
        offsets, at, times = self._queues.get(queue, (np.empty(0), np.empty(0), np.empty(0)))
        end = int(np.searchsorted(at, log_end))
        begins = np.flatnonzero(offsets[:end] == 0)
        present = slice(begins[-1] if len(begins) else 0, end)
        return offsets[present], at[present], times[present]

    def min_offsets(self, log_start: int, log_end: int) -> dict[str, dict[int, int]]:
        """The first queue offset by topic and queue id, while the log had the physical offsets in this range."""
        least_offsets: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for topic, queue_id in self._queues:
            offsets, at, _ = self._present((topic, queue_id), log_end)
            in_log = offsets[at >= log_start]
            if len(offsets):
                least_offsets[topic][queue_id] = int(in_log[0]) if len(in_log) else int(offsets[-1]) + 1
        return dict(least_offsets)

    def stored_at_before(self, log_end: int) -> Callable[[str, int, int], int | None]:
        """A function from topic, queue id and queue offset to a store time (ms), for entries before ``log_end``."""
        present = cache(partial(self._present, log_end=log_end))

        def stored_at(topic: str, queue_id: int, offset: int) -> int | None:
            offsets, _, times = present((topic, queue_id))
            index = int(np.searchsorted(offsets, offset))
            return int(times[index]) if index < len(offsets) and offsets[index] == offset else None

        return stored_at


# The pull windows of earlier nights: for late messages, and those that an older mqsieve did not store.


def late_windows(
    first: int,
    state: BrokerState,
    events: Sequence[SubscriptionEvent],
    tonight: Sequence[PullWindow],
    expressions: Expressions,
    changes: Changes,
    pop_groups: PopGroups,
) -> Iterator[PullWindow]:
    """The windows of the nights since the physical offset ``first``, and of ``tonight``.

    Each late message is in those of its own night, and in the backlogs of later nights.
    """
    nights = state.nights
    begin = next((index for index, night in enumerate(nights) if (night.delivered_to or 0) > first), len(nights))
    rows = changes.rows(PULL_WINDOWS, where=[within("run", nights[begin].run)]) if nights[begin:] else None
    for index, night in enumerate(nights[begin:], begin):
        began = nights[index - 1].as_of if index else None
        known = [event for event in events if event.at <= (night.as_of or 0)]
        earlier = earlier_configs(nights[:index])
        history = subscription_history(known, night.broker, expressions, earlier)
        filters = NightFilters(history, night.broker, pop_groups.most_attempts)
        night_rows = filtered(rows, [one_of("run", [night.run])])
        windows = planned_windows(night_rows, filters, began)
        yield from _night_windows(windows, _last_stored(nights[index - 1]) if index else None, _last_stored(night))
    yield from _night_windows(tonight, _last_stored(nights[-1]) if nights else None, None)


def _last_stored(night: LedgerEntry) -> int | None:
    """When the last message was stored that a night read (ms). What was stored until its end may be of the next one."""
    return night.as_of if night.last_stored is None else night.last_stored


def _night_windows(windows: Iterable[PullWindow], after: int | None, until: int | None) -> Iterator[PullWindow]:
    """The windows of a night: those of groups online with messages stored after ``after`` (ms), up to ``until``.

    The night before read up to ``after``, and this one up to ``until``.
    """
    begin, end = BEGINNING if after is None else after + 1, FOREVER if until is None else until + 1
    for window in windows:
        if window.kind is WindowKind.ONLINE:
            window = replace(window, stored_from=max(window.stored_from, begin), stored_to=min(window.stored_to, end))
        yield window


def plan_older_nights(
    state: BrokerState,
    events: Sequence[SubscriptionEvent],
    read_queues: Mapping[str, int],
    expressions: Expressions,
    changes: Changes,
) -> None:
    """Adds the windows of the nights in ``state`` that an older mqsieve ran: plans them as they were planned then.

    ``read_queues``: the numbers of queues now, which count where a night did not know them.
    """
    planned = {*changes.rows(PULL_WINDOWS, ["run"])["run"].to_pylist()}
    nights, runs = state.nights, unreplaced_runs(state.entries)
    missing = [index for index, night in enumerate(nights) if night.run not in planned]
    if not missing:
        return
    changes.withdraw(PULL_WINDOWS, [one_of("run", [nights[index].run for index in missing])])
    past = past_nights(nights, range(len(nights)), changes)
    for index, night in enumerate(past):
        if index not in missing:
            continue
        before = read_state_before(changes.warehouse, runs, state.first_run(index))
        is_last = index + 1 == len(nights)
        after = state if is_last else read_state_before(changes.warehouse, runs, state.first_run(index + 1))
        entry = night.entry
        known = [event for event in with_offsets(events, entry.resets_by_time) if event.at <= (entry.as_of or 0)]
        history = before.history(known, entry.broker, expressions)
        queues = {**read_queues, **night.offsets.read_queues}
        restarts = after.restarts_since(before)
        offsets = replace(night.offsets, read_queues=queues, restarts=restarts, taken_at=entry.as_of)
        plan = plan_night(history, known, before.offsets, offsets, entry.broker, before.config)
        changes.add_rows(PULL_WINDOWS, [window_rows(plan, entry.run)])
