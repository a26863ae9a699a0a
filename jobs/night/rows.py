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
    GroupNight,
    Offsets,
    QueueRestart,
    TopicOffsets,
)
from filtering.consumption.queues import QueueNight
from filtering.delivery import topic_filters
from filtering.delivery.entries import Int64s, positions_in
from filtering.delivery.pull_window import PullWindow, UncertainRange
from filtering.delivery.topic_filters import count_uncertain
from filtering.frozen import frozen
from filtering.names import subscribed_topic
from filtering.subscriptions.events import InvalidSubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.commit import Changes
from jobs.night.night_inputs import NightEvents, NightInputs
from jobs.night.past import BrokerState
from jobs.night.pops import NO_POP_COUNTS, PopCounts
from jobs.night.tasks import TaskResult
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
    """The counts of workers, with the pull windows and uncertain changes that they are for, by topic."""

    windows: Mapping[str, Sequence[PullWindow]]
    uncertain_ranges: Mapping[str, Sequence[UncertainRange]]
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
    groups: Sequence[GroupNight],
    broker_offsets: BrokerOffsets,
    parts: Sequence[FilteredPart],
    queues: Mapping[str, Mapping[int, QueueNight]],
    instants: Mapping[str, Int64s],
    as_of: int,
    run: str,
    popped: PopCounts = NO_POP_COUNTS,
    traced: Mapping[str, Sequence[CountChange]] = NOTHING,
) -> ProgressRows:
    """Makes the rows of a night.

    ``before``: the offsets at the beginning of the night, by topic. ``queues``: the queues with new entries, by topic
    and queue id. ``instants``: the times (ms) for which workers noted queue ends, by topic. ``popped``: what groups
    that pop got. ``traced``: by topic, how traces change counts.
    """
    by_topic: defaultdict[str, list[GroupNight]] = defaultdict(list)
    for group in groups:
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
    for topic in sorted(by_topic.keys() | queues.keys() | with_offsets):
        old = before.get(topic, NO_QUEUES)
        seen = queues.get(topic, {})
        began = {queue_id: night.restart for queue_id, night in seen.items() if night.restart is not None}
        old_ends = {queue_id: 0 if queue_id in began else end for queue_id, end in old.ends_by_queue.items()}
        ends = old_ends | {queue_id: max(night.end, old_ends.get(queue_id, 0)) for queue_id, night in seen.items()}
        begins = old.begins_by_queue | {queue_id: restart.commitlog_offset for queue_id, restart in began.items()}
        # A group without a subscription may begin at its committed offset in a later night.
        others = [group for group, queue_offsets in committed[topic].items() if queue_offsets.keys() & ends.keys()]
        others += [group for group, _, _ in popped_keys[topic]]
        new = old.extended(ends, [group.key[0] for group in by_topic[topic]] + others, begins)
        decided_before, committed_before = new.decided_to.copy(), new.committed.copy()
        counts = _counts(topic, new, parts)
        _count_pops(new, popped, popped_keys[topic], counts)
        _count_traces(new, traced.get(topic, ()), counts)
        _begin_again(new, began.values())
        for group in by_topic[topic]:
            _advance(group, old_ends, new, seen, instants.get(topic, np.empty(0, np.int64)))
            _count_lost(group, new, counts)
        _note_committed(new, committed[topic])
        for consumer_group in losing.get(topic, ()):
            committed_now = new.committed[new.groups[consumer_group]]
            committed_now[committed_now != UNKNOWN] = REMOVED
        topics[topic] = new
        changed = (new.decided_to != decided_before) | (new.committed != committed_before)
        restarted = [new.columns[queue_id] for queue_id in began]
        changed[:, restarted] |= new.decided_to[:, restarted] != UNKNOWN
        offsets.append(changed_offset_rows(topic, new, changed, as_of, run))
        stored, ended = (
            np.array([getattr(seen[each], name) if each in seen else 0 for each in new.queue_ids], np.int64)
            for name in ("entries", "ended")
        )
        stats.append(_stat_rows(topic, new, decided_before, counts, stored, ended, run, popped))
    return ProgressRows(offsets, stats, _queue_rows(queues, topics, run), topics)


def _begin_again(offsets: TopicOffsets, restarts: Iterable[QueueRestart]) -> None:
    """Nothing is decided of the new entries of queues yet. With their topic, the groups lost their offsets."""
    for restart in restarts:
        column = offsets.columns[restart.queue_id]
        decided_to, committed = offsets.decided_to[:, column], offsets.committed[:, column]
        decided_to[decided_to >= 0] = 0
        if not restart.keeps_offsets:
            committed[committed >= 0] = REMOVED


def _advance(
    group: GroupNight, old_ends: Offsets, new: TopicOffsets, seen: Mapping[int, QueueNight], instants: Int64s
) -> None:
    """Writes to ``new`` the offset up to which the group's deliveries are decided.

    ``old_ends``: the ends of the queues when the night began; 0 if a queue began again.
    """
    row = new.groups[group.key[0]]
    if group.is_consuming:
        new.decided_to[row] = new.ends
    elif group.stopped_at is not None:
        at = int(np.searchsorted(instants, group.stopped_at))
        new.decided_to[row] = [
            max(old_ends.get(queue_id, 0), seen[queue_id].ends[at] if queue_id in seen else 0)
            for queue_id in new.queue_ids
        ]
    else:
        new.decided_to[row] = np.where(new.decided_to[row] == UNKNOWN, 0, new.decided_to[row])
    for queue_id, offset in group.decided_to.items():
        if (column := new.columns.get(queue_id)) is not None:
            new.decided_to[row, column] = min(offset, new.ends[column])


def _note_committed(offsets: TopicOffsets, committed: Mapping[str, Offsets]) -> None:
    """Writes the committed offsets of groups to ``offsets``."""
    known = [(row, committed[group]) for group, row in offsets.groups.items() if group in committed]
    sizes = [len(group_offsets) for _, group_offsets in known]
    count = sum(sizes)
    if not count or not offsets.queue_ids:
        return
    rows = np.repeat([row for row, _ in known], sizes)
    queue_ids = np.fromiter(chain.from_iterable(group_offsets for _, group_offsets in known), np.int64, count)
    values = np.fromiter(chain.from_iterable(group_offsets.values() for _, group_offsets in known), np.int64, count)
    columns = positions_in(np.array(offsets.queue_ids, np.int64), queue_ids)
    has_queue = columns >= 0
    offsets.committed[rows[has_queue], columns[has_queue]] = values[has_queue]


def _counts(topic: str, offsets: TopicOffsets, parts: Sequence[FilteredPart]) -> dict[str, Int64s]:
    """The counts of the filters by name of COUNTS, as arrays of groups x queues."""
    shape = len(offsets.groups), len(offsets.queue_ids)
    counts = {name: np.zeros(shape, np.int64) for name in COUNTS}
    for part in parts:
        counted = part.result.counts.get(topic)
        if counted is None:
            continue
        windows = part.windows.get(topic, ())
        window_numbers = np.array([offsets.groups[window.consumer_group] for window in windows], np.int64)
        has_same_tags = np.array([window.message_filter.client_checks_same_tags for window in windows], np.int64)
        change_numbers = np.array(
            [offsets.groups[change.consumer_group] for change in part.uncertain_ranges.get(topic, ())], np.int64
        )
        for queue_id, blocks in counted.uncertain.items():
            np.add.at(counts["uncertain"][:, offsets.columns[queue_id]], change_numbers, count_uncertain(blocks))
        columns = np.searchsorted(offsets.queue_ids, counted.queue_ids)
        window_counts = {name: counted.counts[:, :, i] for i, name in enumerate(topic_filters.COUNTS)}
        others = window_counts.pop("dead") + window_counts["dropped_by_hook"]
        dropped = window_counts["passed_stage2"] - window_counts["delivered"] - others
        window_counts |= {"scanned": counted.scanned, "hash_collisions": dropped * has_same_tags[:, None]}
        for name, numbers in window_counts.items():
            np.add.at(counts[name], (window_numbers[:, None], columns), numbers)
    return counts


def _count_pops(offsets: TopicOffsets, popped: PopCounts, keys: Iterable[Key], counts: Mapping[str, Int64s]) -> None:
    """Adds the messages that pops of one topic handed out. ``keys``: those of its queues in ``popped``."""
    for key in keys:
        group, _, queue_id = key
        row, column = offsets.groups.get(group), offsets.columns.get(queue_id)
        if row is not None and column is not None:
            for name in ("scanned", "passed_stage1", "passed_stage2"):
                counts[name][row, column] += popped.returned[key]
            counts["delivered"][row, column] += popped.delivered[key]
            counts["uncertain"][row, column] += popped.uncertain[key]


def _count_traces(offsets: TopicOffsets, changes: Iterable[CountChange], counts: Mapping[str, Int64s]) -> None:
    """Changes the counts of one topic by what traces decided."""
    for group, queue_id, name, change in changes:
        row, column = offsets.groups.get(group), offsets.columns.get(queue_id)
        if row is not None and column is not None:
            counts[name][row, column] += change


def _count_read(
    topic: str,
    offsets: TopicOffsets,
    decided_before: Int64s,
    popped: PopCounts,
    advanced: Int64s,
    counts: Mapping[str, Int64s],
) -> None:
    """What groups that pop went past was read by pops, but for what was before their first one."""
    for group, row in offsets.groups.items():
        if (group, subscribed_topic(group, topic)) in popped.popping:
            for queue_id, column in offsets.columns.items():
                is_first = decided_before[row, column] == UNKNOWN
                start = popped.starts.get((group, topic, queue_id), advanced[row, column]) if is_first else 0
                read = advanced[row, column] - counts["lost"][row, column] - start
                counts["scanned"][row, column] = max(counts["scanned"][row, column], read)


def _count_lost(group: GroupNight, offsets: TopicOffsets, counts: Mapping[str, Int64s]) -> None:
    row = offsets.groups[group.key[0]]
    for queue_id, lost in group.lost.items():
        if (column := offsets.columns.get(queue_id)) is not None:
            counts["lost"][row, column] += lost


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


def _stat_rows(
    topic: str,
    offsets: TopicOffsets,
    decided_before: Int64s,
    counts: dict[str, Int64s],
    stored: Int64s,
    ended: Int64s,
    run: str,
    popped: PopCounts,
) -> pa.RecordBatch:
    """The rows of delivery_stats. Entries up to ``decided_to`` were filtered (if again: repeated), lost or skipped.

    Those that waited in an old queue, which had ``ended`` entries, when the queue began again, are lost.
    """
    is_decided = offsets.decided_to != UNKNOWN  # the other groups have no subscription
    counts["stored"][:] = stored * is_decided
    counts["pending"] = (offsets.ends - np.maximum(offsets.decided_to, 0)) * is_decided
    advanced = np.maximum(offsets.decided_to, 0) - np.maximum(decided_before, 0) + ended * is_decided
    _count_read(topic, offsets, decided_before, popped, advanced, counts)
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
        "topic": repeated(topic, len(rows)),
        "queue_id": pa.array(np.array(offsets.queue_ids, np.int32)[columns]),
    }
    values |= {name: pa.array(counts[name][rows, columns]) for name in COUNTS}
    return DELIVERY_STATS.batch(values, len(rows))


# Invalid lines.


class RejectedLine(NamedTuple):
    """A quarantined line of a text file: columns of QUARANTINE. ``offset`` is its number, from 1."""

    source_file: str
    offset: int
    reason: str
    bytes: bytes


def replace_rejected(source_file: str, rejected: Sequence[InvalidSubscriptionEvent], changes: Changes) -> None:
    """Replaces the quarantined lines of a text file. Those that an earlier run quarantined keep its name."""
    stored = quarantined_lines([source_file], changes)
    now = dict.fromkeys(
        RejectedLine(source_file, line.line, _valid(line.reason), line.text.encode("utf-8", "surrogateescape"))
        for line in rejected
    )
    gone = remove_lines(stored - now.keys(), changes)
    new = [line for line in now if line not in stored or line.offset in gone]
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


def write_subscriptions(
    events: NightEvents,
    history: Sequence[SubscriptionRow],
    state: BrokerState,
    inputs: NightInputs,
    changes: Changes,
    rewrite: bool,
) -> None:
    """Writes the subscriptions, their events, and the quarantined lines of the subscription file.

    ``rewrite``: the rows of subscriptions may have changed even if the events are the same.
    """
    for name, rejected in inputs.rejected_subscriptions.items():
        replace_rejected(name, rejected, changes)
    stored = state.events
    if events.events == stored and not rewrite:
        return
    changes.replace_rows(SUBSCRIPTIONS, [subscription_rows(history)])
    if events.events[: len(stored)] != stored:
        changes.replace_rows(SUBSCRIPTION_EVENTS, [event_rows(events.events, 0, changes.run)])
    elif len(events.events) > len(stored):
        new = events.events[len(stored) :]
        changes.add_rows(SUBSCRIPTION_EVENTS, [event_rows(new, len(stored), changes.run)])
