"""How far queues came: the new entries of each, in a block, in a task and in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from filtering.delivery.entries import Entries, Int64s

NO_INSTANTS = np.empty(0, np.int64)


@dataclass
class QueueProgress:
    """The new entries of one queue: the first offset, the offset after the last one, and their number.

    ``ends``: for each of the topic's instants, the offset after the last entry stored before it; 0 if there is none.
    ``begin`` and ``last`` are the physical offsets of the first and the last entry, ``begun_at`` is when the first one
    was stored (ms).
    """

    first: int
    end: int
    entries: int
    ends: Int64s
    begin: int
    last: int
    begun_at: int

    def add(self, other: QueueProgress) -> None:
        self.first, self.end = min(self.first, other.first), max(self.end, other.end)
        self.entries += other.entries
        self.ends = np.maximum(self.ends, other.ends)
        if other.begin < self.begin:
            self.begin, self.begun_at = other.begin, other.begun_at
        self.last = max(self.last, other.last)


Queues = dict[tuple[str, int], list[QueueProgress]]
"""By topic and queue id, the new entries in the order of the log; more than one item if the queue began again."""


def add_progress(queues: Queues, queue: tuple[str, int], progress: QueueProgress) -> None:
    """Adds later entries of one queue to those of all ``queues``. At offset 0, the queue begins again."""
    known = queues.setdefault(queue, [])
    if known and progress.first > 0:
        known[-1].add(progress)
    else:
        known.append(progress)


def progress_of_block(entries: Entries, instants: Int64s) -> Iterator[tuple[int, QueueProgress]]:
    """Each queue id with its new entries in the order of the log; several items if the queue begins again."""
    queue_ids, bounds = entries.queue_bounds
    starts, places = bounds[:-1], entries.commitlog_offset
    firsts, lasts = entries.queue_offset[starts].tolist(), entries.queue_offset[bounds[1:] - 1].tolist()
    begins, last_places = places[starts].tolist(), places[bounds[1:] - 1].tolist()
    times = entries.store_timestamp[starts].tolist()
    bounds_of = pairwise(bounds.tolist())
    queues = zip(queue_ids.tolist(), bounds_of, firsts, lasts, begins, last_places, times, strict=True)
    for queue_id, (start, stop), first, last, begin, last_place, at in queues:
        if first == 0 and _began_again(entries, start, stop):
            yield from ((queue_id, each) for each in _generations(entries, start, stop, instants))
            continue
        ends = _ends(entries.queue_offset[start:stop], entries.store_timestamp[start:stop], instants)
        yield queue_id, QueueProgress(first, last + 1, stop - start, ends, begin, last_place, at)


def _began_again(entries: Entries, start: int, stop: int) -> bool:
    """Whether other entries of a queue are before one with offset 0. The entry at ``start`` has offset 0."""
    has_another = stop - start > 1 and entries.queue_offset[start + 1] == 0
    return bool(has_another or entries.commitlog_offset[start:stop].min() < entries.commitlog_offset[start])


def _generations(entries: Entries, start: int, stop: int, instants: Int64s) -> Iterator[QueueProgress]:
    """The entries of a queue, divided where it begins again."""
    in_log_order = start + np.argsort(entries.commitlog_offset[start:stop], kind="stable")
    zeros = np.flatnonzero(entries.queue_offset[in_log_order] == 0)
    for rows in np.split(in_log_order, zeros[zeros > 0]):
        offsets, places, times = (
            array[rows] for array in (entries.queue_offset, entries.commitlog_offset, entries.store_timestamp)
        )
        yield QueueProgress(
            int(offsets.min()), int(offsets.max()) + 1, len(rows), _ends(offsets, times, instants), int(places[0]),
            int(places[-1]), int(times[0]),
        )  # fmt: skip


def _ends(offsets: Int64s, times: Int64s, instants: Int64s) -> Int64s:
    """For each instant, the queue offset after the last entry stored before it, among entries of one queue."""
    if not len(instants):
        return NO_INSTANTS
    return np.array([int(offsets[times < instant].max(initial=-1)) + 1 for instant in instants.tolist()], np.int64)
