"""Each group's progress in a night: rows of consumer_offsets, delivery_stats and queue_progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from filtering.consumption.group_progress import GroupNight
from filtering.consumption.offsets import NO_QUEUES, REMOVED, UNKNOWN, BrokerOffsets, Offsets, TopicOffsets
from filtering.consumption.renewals import QueueRenewal
from filtering.delivery import window_loops
from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import PullWindow, UncertainChange
from filtering.delivery.uncertain_entries import count_uncertain
from jobs.night.rows.offset_rows import changed_offset_rows
from jobs.night.rows.queue_nights import QueueNight
from jobs.night.tasks.work import TaskResult
from schemas.arrow_batches import numbered, repeated
from schemas.delivery_stats import COUNTS, DELIVERY_STATS
from schemas.queue_progress import QUEUE_PROGRESS


@dataclass(frozen=True, eq=False)
class Part:
    """The counts of workers, with the pull windows and uncertain changes that they are for, by topic."""

    windows: Mapping[str, Sequence[PullWindow]]
    uncertain_changes: Mapping[str, Sequence[UncertainChange]]
    result: TaskResult


@dataclass(frozen=True, eq=False)
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
    parts: Sequence[Part],
    queues: Mapping[str, Mapping[int, QueueNight]],
    instants: Mapping[str, Int64s],
    as_of: int,
    run: str,
) -> ProgressRows:
    """Makes the rows of a night.

    ``before``: the offsets at the beginning of the night, by topic. ``queues``: the queues with new entries, by topic
    and queue id. ``instants``: the times (ms) for which workers noted queue ends, by topic.
    """
    by_topic: defaultdict[str, list[GroupNight]] = defaultdict(list)
    for group in groups:
        by_topic[group.key[1]].append(group)
    committed: defaultdict[str, dict[str, Offsets]] = defaultdict(dict)
    for (consumer_group, topic), queue_offsets in broker_offsets.committed.items():
        committed[topic][consumer_group] = queue_offsets
    losing = {topic: known.losing(topic, broker_offsets) for topic, known in before.items()}
    topics: dict[str, TopicOffsets] = dict(before)
    offsets, stats = [], []
    with_offsets = (before.keys() & committed.keys()) | {topic for topic, removed in losing.items() if removed}
    for topic in sorted(by_topic.keys() | queues.keys() | with_offsets):
        old = before.get(topic, NO_QUEUES)
        seen = queues.get(topic, {})
        began = {queue_id: night.renewal for queue_id, night in seen.items() if night.renewal is not None}
        old_ends = {queue_id: 0 if queue_id in began else end for queue_id, end in old.ends_by_queue.items()}
        ends = old_ends | {queue_id: max(night.end, old_ends.get(queue_id, 0)) for queue_id, night in seen.items()}
        begins = old.begins_by_queue | {queue_id: renewal.commitlog_offset for queue_id, renewal in began.items()}
        # A group without a subscription may begin at its committed offset in a later night.
        others = [group for group, queue_offsets in committed[topic].items() if queue_offsets.keys() & ends.keys()]
        new = old.extended(ends, [group.key[0] for group in by_topic[topic]] + others, begins)
        told_before, committed_before = new.told_to.copy(), new.committed.copy()
        counts = _counts(topic, new, parts)
        _begin_again(new, began.values())
        for group in by_topic[topic]:
            _advance(group, old_ends, new, seen, instants.get(topic, np.empty(0, np.int64)))
            _count_lost(group, new, counts)
        _note_committed(new, committed[topic])
        for consumer_group in losing.get(topic, ()):
            committed_now = new.committed[new.groups[consumer_group]]
            committed_now[committed_now != UNKNOWN] = REMOVED
        topics[topic] = new
        changed = (new.told_to != told_before) | (new.committed != committed_before)
        restarted = [new.columns[queue_id] for queue_id in began]
        changed[:, restarted] |= new.told_to[:, restarted] != UNKNOWN
        offsets.append(changed_offset_rows(topic, new, changed, as_of, run))
        stored, ended = (
            np.array([getattr(seen[each], name) if each in seen else 0 for each in new.queue_ids], np.int64)
            for name in ("entries", "ended")
        )
        stats.append(_stat_rows(topic, new, told_before, counts, stored, ended, run))
    return ProgressRows(offsets, stats, _queue_rows(queues, topics, run), topics)


def _begin_again(offsets: TopicOffsets, renewals: Iterable[QueueRenewal]) -> None:
    """Nothing is told of the new entries of queues yet. With their topic, the groups lost their offsets."""
    for renewal in renewals:
        column = offsets.columns[renewal.queue_id]
        told_to, committed = offsets.told_to[:, column], offsets.committed[:, column]
        told_to[told_to >= 0] = 0
        if not renewal.keeps_offsets:
            committed[committed >= 0] = REMOVED


def _advance(
    group: GroupNight, old_ends: Offsets, new: TopicOffsets, seen: Mapping[int, QueueNight], instants: Int64s
) -> None:
    """Writes to ``new`` the offset up to which the group's deliveries are decided.

    ``old_ends``: the ends of the queues when the night began; 0 if a queue began again.
    """
    row = new.groups[group.key[0]]
    if group.is_consuming:
        new.told_to[row] = new.ends
    elif group.stopped_at is not None:
        at = int(np.searchsorted(instants, group.stopped_at))
        new.told_to[row] = [
            max(old_ends.get(queue_id, 0), seen[queue_id].ends[at] if queue_id in seen else 0)
            for queue_id in new.queue_ids
        ]
    else:
        new.told_to[row] = np.where(new.told_to[row] == UNKNOWN, 0, new.told_to[row])
    for queue_id, offset in group.told_to.items():
        if (column := new.columns.get(queue_id)) is not None:
            new.told_to[row, column] = min(offset, new.ends[column])


def _note_committed(offsets: TopicOffsets, committed: Mapping[str, Offsets]) -> None:
    """Writes the committed offsets of groups to ``offsets``."""
    for group, row in offsets.groups.items():
        for queue_id, offset in committed.get(group, {}).items():
            if (column := offsets.columns.get(queue_id)) is not None:
                offsets.committed[row, column] = offset


def _counts(topic: str, offsets: TopicOffsets, parts: Sequence[Part]) -> dict[str, Int64s]:
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
            [offsets.groups[change.consumer_group] for change in part.uncertain_changes.get(topic, ())], np.int64
        )
        for queue_id, blocks in counted.uncertain.items():
            np.add.at(counts["uncertain"][:, offsets.columns[queue_id]], change_numbers, count_uncertain(blocks))
        columns = np.searchsorted(offsets.queue_ids, counted.queue_ids)
        of_windows = {name: counted.counts[:, :, i] for i, name in enumerate(window_loops.COUNTS)}
        dropped = of_windows["passed_stage2"] - of_windows["delivered"] - of_windows["dropped_by_hook"]
        of_windows |= {"scanned": counted.scanned, "hash_collisions": dropped * has_same_tags[:, None]}
        for name, numbers in of_windows.items():
            np.add.at(counts[name], (window_numbers[:, None], columns), numbers)
    return counts


def _count_lost(group: GroupNight, offsets: TopicOffsets, counts: Mapping[str, Int64s]) -> None:
    row = offsets.groups[group.key[0]]
    for queue_id, lost in group.lost.items():
        if (column := offsets.columns.get(queue_id)) is not None:
            counts["lost"][row, column] = lost


def _queue_rows(
    queues: Mapping[str, Mapping[int, QueueNight]], topics: Mapping[str, TopicOffsets], run: str
) -> pa.RecordBatch:
    begins = {topic: topics[topic].begins_by_queue for topic in queues}
    rows = [
        {
            "topic": topic, "queue_id": queue_id, "from_offset": night.first, "to_offset": night.end,
            "entries": night.entries, "begins_at": begins[topic].get(queue_id),
            "began_at": None if night.renewal is None else night.renewal.at,
            "ended_at": None if night.renewal is None else night.ended, "run": run,
        }
        for topic, of_topic in sorted(queues.items())
        for queue_id, night in sorted(of_topic.items())
    ]  # fmt: skip
    return QUEUE_PROGRESS.rows_batch(rows)


def _stat_rows(
    topic: str,
    offsets: TopicOffsets,
    told_before: Int64s,
    counts: dict[str, Int64s],
    stored: Int64s,
    ended: Int64s,
    run: str,
) -> pa.RecordBatch:
    """The rows of delivery_stats. Entries up to ``told_to`` were filtered (if again: repeated), lost or skipped.

    Those that waited in an old queue, which had ``ended`` entries, when the queue began again, are lost.
    """
    is_told = offsets.told_to != UNKNOWN  # the other groups have no subscription
    counts["stored"][:] = stored * is_told
    counts["pending"] = (offsets.ends - np.maximum(offsets.told_to, 0)) * is_told
    advanced = np.maximum(offsets.told_to, 0) - np.maximum(told_before, 0) + ended * is_told
    rest = advanced - counts["scanned"] - counts["lost"]
    lost = np.clip(rest, 0, np.where(told_before == UNKNOWN, 0, np.maximum(ended - told_before, 0)))
    counts["lost"] += lost
    rest -= lost
    counts["skipped"], counts["repeated"] = np.maximum(rest, 0), np.maximum(-rest, 0)
    shown = [counts[name] for name in ("scanned", "lost", "skipped", "repeated", "stored", "pending", "uncertain")]
    rows, columns = np.nonzero(np.sum(shown, axis=0))
    values = {
        "run": repeated(run, len(rows)),
        "consumer_group": numbered(offsets.groups, rows),
        "topic": repeated(topic, len(rows)),
        "queue_id": pa.array(np.array(offsets.queue_ids, np.int32)[columns]),
    }
    values |= {name: pa.array(counts[name][rows, columns]) for name in COUNTS}
    return DELIVERY_STATS.batch(values, len(rows))
