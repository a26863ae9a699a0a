"""The rows that the driver makes in a night, in Arrow columns.

- The progress of groups and queues (:func:`progress_rows`): rows of consumer_offsets, delivery_stats and
  queue_progress, from the counts of the tasks, the plan's GroupNights and the committed offsets; and current_offsets,
  with which the next night begins.
- Invalid lines of text files, for quarantine.
- Subscriptions and their events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.consumption.offsets import (
    NO_QUEUES,
    REMOVED,
    UNKNOWN,
    BrokerOffsets,
    GroupProgress,
    Offsets,
    TopicOffsets,
)
from filtering.consumption.plan import NightPlan
from filtering.consumption.queues import NO_INSTANTS, QueueNight
from filtering.delivery import topic_filters
from filtering.delivery.entries import Int64s, positions_in
from filtering.delivery.topic_filters import count_uncertain
from filtering.frozen import frozen
from filtering.names import subscribed_topic
from filtering.subscriptions.events import InvalidSubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.commit import Changes
from jobs.night.night_inputs import NightStart
from jobs.night.pops import NO_POP_COUNTS, PopCounts
from jobs.night.tasks import TaskResult, TopicWindows
from jobs.night.traced_deliveries import CountChange
from schemas.arrow_batches import dictionary_column, repeated
from schemas.delta.table_rows import Key, one_of, tuples
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS, event_rows, subscription_rows
from schemas.tables import CONSUMER_OFFSETS, COUNTS, CURRENT_OFFSETS, DELIVERY_STATS, QUARANTINE, QUEUE_PROGRESS

# Offsets of groups: current_offsets, and consumer_offsets, their history.


def current_offset_rows(topics: Mapping[str, TopicOffsets], run: str) -> list[pa.RecordBatch]:
    return [_current_offset_rows(topic, offsets, run) for topic, offsets in topics.items()]


def _current_offset_rows(topic: str, offsets: TopicOffsets, run: str) -> pa.RecordBatch:
    """A row for each group and queue. A topic without groups has a row without a group for each queue."""
    queues, groups = len(offsets.queue_ids), len(offsets.groups)
    rows = queues * max(1, groups)
    begins = np.tile(offsets.begins, max(1, groups))
    columns = {
        "topic": repeated(topic, rows),
        "queue_id": pa.array(np.tile(np.array(offsets.queue_ids, np.int32), max(1, groups))),
        "queue_end": pa.array(np.tile(offsets.ends, max(1, groups))),
        "begins_at": pa.array(begins, mask=begins == 0),
        "run": repeated(run, rows),
    }
    if groups:
        decided_to, committed = (array.reshape(-1) for array in (offsets.decided_to, offsets.committed))
        columns |= {
            "consumer_group": dictionary_column(offsets.groups, np.repeat(np.arange(groups), queues)),
            "decided_to": pa.array(decided_to, mask=decided_to == UNKNOWN),
            "committed": pa.array(committed, mask=committed == UNKNOWN),
        }
    return CURRENT_OFFSETS.batch(columns, rows)


def changed_offset_rows(
    topic: str, offsets: TopicOffsets, changed: NDArray[np.bool_], as_of: int, run: str
) -> pa.RecordBatch:
    """Rows of consumer_offsets. ``changed``: which offsets they are, as groups x queues."""
    rows, columns = np.nonzero(changed)
    count = len(rows)
    committed = offsets.committed[rows, columns]
    decided_to = offsets.decided_to[rows, columns]
    values = {
        "consumer_group": dictionary_column(offsets.groups, rows),
        "topic": repeated(topic, count),
        "queue_id": pa.array(np.array(offsets.queue_ids, np.int32)[columns]),
        "as_of": pa.repeat(pa.scalar(as_of, pa.int64()), count),
        "decided_to": pa.array(decided_to, mask=decided_to == UNKNOWN),
        "committed": pa.array(committed, mask=committed == UNKNOWN),
        "run": repeated(run, count),
    }
    return CONSUMER_OFFSETS.batch(values, count)


def committed_rows(
    before: Mapping[str, TopicOffsets], broker_offsets: BrokerOffsets, as_of: int, run: str
) -> Sequence[pa.RecordBatch]:
    """Rows of consumer_offsets with the committed offsets of a snapshot that differ from those of the last night.

    ``before``: the offsets when that night ended. Those that the broker has removed since are listed, too. Without
    known queues, these may be of a deleted topic: deliver sees whether it was created again.
    """
    committed = [
        (group, topic, queue_id, offset)
        for (group, topic), offsets in broker_offsets.committed.items()
        for queue_id, offset in offsets.items()
        if topic not in before or before[topic].committed_by(group, queue_id) != offset
    ]
    committed += [
        (group, topic, queue_id, REMOVED)
        for topic, offsets in before.items()
        if topic in broker_offsets.min_offsets or not broker_offsets.min_offsets
        for group in offsets.absent(topic, broker_offsets)
        for queue_id in offsets.queue_ids
        if offsets.committed_by(group, queue_id) != UNKNOWN
    ]
    rows = [
        {
            "consumer_group": group, "topic": topic, "queue_id": queue_id, "as_of": as_of, "committed": offset,
            "run": run,
        }
        for group, topic, queue_id, offset in committed
    ]  # fmt: skip
    return [CONSUMER_OFFSETS.rows_batch(rows)] if rows else []


# The progress of queues and groups.


NOTHING: Mapping[str, Sequence[CountChange]] = MappingProxyType({})


@frozen(eq=False)
class FilteredPart:
    """The result of tasks, and the windows by which they filtered."""

    filtered_by: TopicWindows
    result: TaskResult


@frozen(eq=False)
class ProgressRows:
    """Rows of three tables (texts are dictionaries), and the offsets with which the next night begins."""

    offsets: Sequence[pa.RecordBatch]
    stats: Sequence[pa.RecordBatch]
    progress: pa.RecordBatch
    topics: dict[str, TopicOffsets]


def progress_rows(
    before: Mapping[str, TopicOffsets],
    plan: NightPlan,
    broker_offsets: BrokerOffsets,
    parts: Sequence[FilteredPart],
    queues: Mapping[str, Mapping[int, QueueNight]],
    as_of: int,
    run: str,
    popped: PopCounts = NO_POP_COUNTS,
    traced: Mapping[str, Sequence[CountChange]] = NOTHING,
) -> ProgressRows:
    """Makes the rows of a night.

    ``before``: the offsets at the beginning of the night, by topic. ``queues``: the queues with new entries, by topic
    and queue id. ``popped``: what groups that pop got. ``traced``: by topic, how traces change counts.
    """
    by_topic: defaultdict[str, list[GroupProgress]] = defaultdict(list)
    for group in plan.groups:
        by_topic[group.key[1]].append(group)
    committed: defaultdict[str, dict[str, Offsets]] = defaultdict(dict)
    for (consumer_group, topic), queue_offsets in broker_offsets.committed.items():
        committed[topic][consumer_group] = queue_offsets
    popped_keys: defaultdict[str, list[Key]] = defaultdict(list)
    for key in {**popped.returned, **popped.uncertain}:
        popped_keys[key[1]].append(key)
    losing = {topic: known.losing(topic, broker_offsets) for topic, known in before.items()}
    topics: dict[str, TopicOffsets] = dict(before)
    offsets, stats = [], []
    with_offsets = (before.keys() & committed.keys()) | {topic for topic, removed in losing.items() if removed}
    counted = popped_keys.keys() | traced.keys()
    for topic in sorted(by_topic.keys() | queues.keys() | with_offsets | counted):
        with_pops = [group for group, _, _ in popped_keys[topic]]
        known = before.get(topic, NO_QUEUES), queues.get(topic, {})
        progress = _TopicProgress(topic, *known, by_topic[topic], committed[topic], with_pops)
        for part in parts:
            progress.count(part)
        progress.count_pops(popped, popped_keys[topic])
        progress.count_traces(traced.get(topic, ()))
        progress.begin_again()
        for group in by_topic[topic]:
            progress.advance(group, plan.instants.get(topic, NO_INSTANTS))
        progress.advance_popped(popped, popped_keys[topic], committed[topic])
        progress.note_committed(committed[topic], losing.get(topic, ()))
        topics[topic] = progress.offsets
        offsets.append(changed_offset_rows(topic, progress.offsets, progress.changed, as_of, run))
        stats.append(progress.stat_rows(popped, run))
    return ProgressRows(offsets, stats, _queue_rows(queues, topics, run), topics)


class _TopicProgress:
    """How far the queues of a topic came in a night, how far its groups, and what these got.

    ``offsets`` are those at the beginning of the night until they are changed. ``counts``: by name of COUNTS, as arrays
    of groups x queues.
    """

    def __init__(
        self,
        topic: str,
        before: TopicOffsets,
        queues: Mapping[int, QueueNight],
        planned: Iterable[GroupProgress],
        committed: Mapping[str, Offsets],
        with_pops: Iterable[str],
    ) -> None:
        """The groups are those that are ``planned`` or ``with_pops``, and those with offsets that are ``committed``.

        A group without a subscription may begin at its committed offset in a later night.
        """
        self._topic = topic
        self._queues = queues
        self._began = {queue_id: night.restart for queue_id, night in queues.items() if night.restart is not None}
        self._old_ends = {
            queue_id: 0 if queue_id in self._began else end for queue_id, end in before.ends_by_queue.items()
        }
        """The ends of the queues when the night began; 0 if a queue began again."""
        ends = {queue_id: max(night.end, self._old_ends.get(queue_id, 0)) for queue_id, night in queues.items()}
        ends = self._old_ends | ends
        restarts = {queue_id: restart.commitlog_offset for queue_id, restart in self._began.items()}
        others = [group for group, queue_offsets in committed.items() if queue_offsets.keys() & ends.keys()]
        names = [*(group.key[0] for group in planned), *others, *with_pops]
        self.offsets = before.extended(ends, names, before.begins_by_queue | restarts)
        self._decided_before, self._committed_before = self.offsets.decided_to.copy(), self.offsets.committed.copy()
        shape = len(self.offsets.groups), len(self.offsets.queue_ids)
        self.counts = {name: np.zeros(shape, np.int64) for name in COUNTS}

    def count(self, part: FilteredPart) -> None:
        """Adds the counts of the filters."""
        counted, offsets, counts = part.result.counts.get(self._topic), self.offsets, self.counts
        if counted is None:
            return
        windows = part.filtered_by.windows.get(self._topic, ())
        window_numbers = np.array([offsets.groups[window.consumer_group] for window in windows], np.int64)
        has_same_tags = np.array([window.message_filter.client_checks_same_tags for window in windows], np.int64)
        uncertain_ranges = part.filtered_by.uncertain_ranges.get(self._topic, ())
        range_numbers = np.array([offsets.groups[each.consumer_group] for each in uncertain_ranges], np.int64)
        for queue_id, blocks in counted.uncertain.items():
            np.add.at(counts["uncertain"][:, offsets.columns[queue_id]], range_numbers, count_uncertain(blocks))
        columns = np.searchsorted(offsets.queue_ids, counted.queue_ids)
        window_counts = {name: counted.counts[:, :, i] for i, name in enumerate(topic_filters.WINDOW_COUNTS)}
        others = window_counts.pop("dead") + window_counts["dropped_by_hook"]
        dropped = window_counts["passed_stage2"] - window_counts["delivered"] - others
        window_counts |= {"scanned": counted.scanned, "hash_collisions": dropped * has_same_tags[:, None]}
        for name, numbers in window_counts.items():
            np.add.at(counts[name], (window_numbers[:, None], columns), numbers)

    def count_pops(self, popped: PopCounts, keys: Iterable[Key]) -> None:
        """Adds the messages that pops handed out. ``keys``: those of the topic's queues in ``popped``."""
        for key in keys:
            group, _, queue_id = key
            for name in ("scanned", "passed_stage1", "passed_stage2"):
                self._add(group, queue_id, name, popped.returned[key])
            self._add(group, queue_id, "delivered", popped.delivered[key])
            self._add(group, queue_id, "uncertain", popped.uncertain[key])

    def count_traces(self, changes: Iterable[CountChange]) -> None:
        """Changes the counts by what traces decided."""
        for change in changes:
            self._add(*change)

    def _add(self, group: str, queue_id: int, name: str, count: int) -> None:
        """Adds to the count of a group in a queue, if both are known."""
        row, column = self.offsets.groups.get(group), self.offsets.columns.get(queue_id)
        if row is not None and column is not None:
            self.counts[name][row, column] += count

    def begin_again(self) -> None:
        """Nothing is decided of the new entries of queues yet. With their topic, the groups lost their offsets."""
        for restart in self._began.values():
            column = self.offsets.columns[restart.queue_id]
            decided_to, committed = self.offsets.decided_to[:, column], self.offsets.committed[:, column]
            decided_to[decided_to >= 0] = 0
            if not restart.keeps_offsets:
                committed[committed >= 0] = REMOVED

    def advance(self, group: GroupProgress, instants: Int64s) -> None:
        """Sets the offset up to which a group's deliveries are decided, and counts what is lost to it."""
        offsets, seen = self.offsets, self._queues
        row = offsets.groups[group.key[0]]
        if group.is_consuming:
            offsets.decided_to[row] = offsets.ends
        elif group.stopped_at is not None:
            at = int(np.searchsorted(instants, group.stopped_at))
            offsets.decided_to[row] = [
                max(self._old_ends.get(queue_id, 0), seen[queue_id].ends[at] if queue_id in seen else 0)
                for queue_id in offsets.queue_ids
            ]
        else:
            offsets.decided_to[row] = np.where(offsets.decided_to[row] == UNKNOWN, 0, offsets.decided_to[row])
        for queue_id, offset in group.decided_to.items():
            if (column := offsets.columns.get(queue_id)) is not None:
                offsets.decided_to[row, column] = min(offset, offsets.ends[column])
        for queue_id, lost in group.lost.items():
            self._add(group.key[0], queue_id, "lost", lost)

    def advance_popped(self, popped: PopCounts, keys: Iterable[Key], committed: Mapping[str, Offsets]) -> None:
        """Where a group has popped and no offset of it is known, its deliveries are decided up to what it popped last.

        ``keys`` and ``committed``: those of the topic. Where a queue began again, pops may be of the old one.
        """
        decided_to = self.offsets.decided_to
        for key in keys:
            group, _, queue_id = key
            row, column = self.offsets.groups[group], self.offsets.columns.get(queue_id)
            is_known = queue_id in committed.get(group, ())
            if column is not None and not is_known and queue_id not in self._began:
                decided_to[row] = np.where(decided_to[row] == UNKNOWN, 0, decided_to[row])
                decided_to[row, column] = max(decided_to[row, column], popped.ends[key])

    def note_committed(self, committed: Mapping[str, Offsets], losing: Iterable[str]) -> None:
        """Sets the committed offsets of groups; those of the groups ``losing`` them are removed."""
        offsets = self.offsets
        known = [(row, committed[group]) for group, row in offsets.groups.items() if group in committed]
        sizes = [len(group_offsets) for _, group_offsets in known]
        count = sum(sizes)
        if count and offsets.queue_ids:
            rows = np.repeat([row for row, _ in known], sizes)
            queue_ids = np.fromiter(chain.from_iterable(each for _, each in known), np.int64, count)
            values = np.fromiter(chain.from_iterable(each.values() for _, each in known), np.int64, count)
            columns = positions_in(np.array(offsets.queue_ids, np.int64), queue_ids)
            has_queue = columns >= 0
            offsets.committed[rows[has_queue], columns[has_queue]] = values[has_queue]
        for group in losing:
            committed_now = offsets.committed[offsets.groups[group]]
            committed_now[committed_now != UNKNOWN] = REMOVED

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Which offsets changed in the night, as groups x queues."""
        now = self.offsets
        changed = (now.decided_to != self._decided_before) | (now.committed != self._committed_before)
        restarted = [now.columns[queue_id] for queue_id in self._began]
        changed[:, restarted] |= now.decided_to[:, restarted] != UNKNOWN
        result: NDArray[np.bool_] = changed
        return result

    def stat_rows(self, popped: PopCounts, run: str) -> pa.RecordBatch:
        """The rows of delivery_stats. Entries up to ``decided_to`` were filtered (if again: repeated), lost or skipped.

        Those that waited in an old queue, which had ``ended`` entries, when the queue began again, are lost.
        """
        offsets, counts, decided_before, seen = self.offsets, self.counts, self._decided_before, self._queues
        stored, ended = (
            np.array([getattr(seen[each], name) if each in seen else 0 for each in offsets.queue_ids], np.int64)
            for name in ("entries", "ended")
        )
        is_decided = offsets.decided_to != UNKNOWN  # the other groups have no subscription
        counts["stored"][:] = stored * is_decided
        counts["pending"] = (offsets.ends - np.maximum(offsets.decided_to, 0)) * is_decided
        advanced = np.maximum(offsets.decided_to, 0) - np.maximum(decided_before, 0) + ended * is_decided
        self._count_read(popped, advanced)
        rest = advanced - counts["scanned"] - counts["lost"]
        lost = np.clip(rest, 0, np.where(decided_before == UNKNOWN, 0, np.maximum(ended - decided_before, 0)))
        counts["lost"] += lost
        rest -= lost
        counts["skipped"], counts["repeated"] = np.maximum(rest, 0), np.maximum(-rest, 0)
        shown = [counts[name] for name in ("scanned", "lost", "skipped", "repeated", "stored", "pending", "uncertain")]
        rows, columns = np.nonzero(np.sum(shown, axis=0))
        values = {
            "run": repeated(run, len(rows)),
            "consumer_group": dictionary_column(offsets.groups, rows),
            "topic": repeated(self._topic, len(rows)),
            "queue_id": pa.array(np.array(offsets.queue_ids, np.int32)[columns]),
        }
        values |= {name: pa.array(counts[name][rows, columns]) for name in COUNTS}
        return DELIVERY_STATS.batch(values, len(rows))

    def _count_read(self, popped: PopCounts, advanced: Int64s) -> None:
        """What groups that pop went past was read by pops, but for what was before their first one."""
        counts = self.counts
        for group, row in self.offsets.groups.items():
            if (group, subscribed_topic(group, self._topic)) in popped.recorded:
                for queue_id, column in self.offsets.columns.items():
                    is_first = self._decided_before[row, column] == UNKNOWN
                    start = popped.starts.get((group, self._topic, queue_id), advanced[row, column]) if is_first else 0
                    read = advanced[row, column] - counts["lost"][row, column] - start
                    counts["scanned"][row, column] = max(counts["scanned"][row, column], read)


def _queue_rows(
    queues: Mapping[str, Mapping[int, QueueNight]], topics: Mapping[str, TopicOffsets], run: str
) -> pa.RecordBatch:
    begins = {topic: topics[topic].begins_by_queue for topic in queues}
    rows = [
        {
            "topic": topic, "queue_id": queue_id, "from_offset": night.first, "to_offset": night.end,
            "entries": night.entries, "begins_at": begins[topic].get(queue_id),
            "began_at": None if night.restart is None else night.restart.at,
            "ended_at": None if night.restart is None else night.ended, "run": run,
        }
        for topic, nights in sorted(queues.items())
        for queue_id, night in sorted(nights.items())
    ]  # fmt: skip
    return QUEUE_PROGRESS.rows_batch(rows)


# Invalid lines.


class RejectedLine(NamedTuple):
    """A quarantined line of a text file: columns of QUARANTINE. ``offset`` is its number, from 1."""

    source_file: str
    offset: int
    reason: str
    bytes: bytes


def replace_rejected(source_file: str, rejected: Sequence[InvalidSubscriptionEvent], changes: Changes) -> None:
    """Replaces the quarantined lines of a text file. Those that an earlier run quarantined keep its name."""
    known = quarantined_lines([source_file], changes)
    now = dict.fromkeys(
        RejectedLine(source_file, line.line, _valid(line.reason), line.text.encode("utf-8", "surrogateescape"))
        for line in rejected
    )
    gone = remove_lines(known - now.keys(), changes)
    new = [line for line in now if line not in known or line.offset in gone]
    changes.add_rows(QUARANTINE, [QUARANTINE.rows_batch([{**line._asdict(), "run": changes.run} for line in new])])


def quarantined_lines(source_files: Collection[str], changes: Changes) -> set[RejectedLine]:
    """The quarantined lines of some text files."""
    rows = changes.rows(QUARANTINE, RejectedLine._fields, [one_of("source_file", source_files)])
    return set(map(RejectedLine._make, tuples(rows, *RejectedLine._fields)))


def remove_lines(lines: Collection[RejectedLine], changes: Changes) -> set[int]:
    """Removes quarantined lines, with all others of the same numbers. Returns the numbers."""
    for name in {line.source_file for line in lines}:
        numbers = sorted({line.offset for line in lines if line.source_file == name})
        changes.delete_rows(QUARANTINE, [one_of("source_file", [name]), one_of("offset", numbers)])
    return {line.offset for line in lines}


def _valid(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON may hold and Arrow does not take."""
    return text.encode("utf-8", "replace").decode()


# Subscriptions.


def write_subscriptions(start: NightStart, history: Sequence[SubscriptionRow], changes: Changes) -> None:
    """Writes the subscriptions, their events, and the quarantined lines of the subscription file."""
    for name, rejected in start.inputs.rejected_subscriptions.items():
        replace_rejected(name, rejected, changes)
    events, before = start.events.events, start.continued_state.events
    if events == before and not start.rewrites_subscriptions:
        return
    changes.replace_rows(SUBSCRIPTIONS, [subscription_rows(history)])
    if events[: len(before)] != before:
        changes.replace_rows(SUBSCRIPTION_EVENTS, [event_rows(events, 0, changes.run)])
    elif len(events) > len(before):
        changes.add_rows(SUBSCRIPTION_EVENTS, [event_rows(events[len(before) :], len(before), changes.run)])
