"""The queues of a night: how far they came, and which of them began again at offset 0.

Tasks note for each queue where its new entries begin and end (QueueProgress), and add this up in the order of the log.
An entry with offset 0 after others shows that the queue began again. Where that was because its topic was deleted, all
queues of the topic did (:func:`find_restarts`). QueueNight is a queue with the entries of all tasks, late ones too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from filtering.consumption.offsets import QueueRestart, TopicOffsets
from filtering.delivery.entries import Entries, Int64s, Queue
from filtering.frozen import frozen

# How far queues came: in a block, in a task and in all of them.


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


Queues = dict[Queue, list[QueueProgress]]
"""By topic and queue id, the new entries in the order of the log; more than one item if the queue began again."""


def add_progress(queues: Queues, queue: Queue, progress: QueueProgress) -> None:
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


# Queues that began again at offset 0, by the new entries.


_NOT_STORED = -1
"""Instead of the physical offset of an entry that is not in the tables: it is older than all that are."""


@frozen
class _Generation:
    """The entries of a queue until it begins again: the physical offsets of the first and the last one.

    ``at``: when the first one was stored (ms). ``end``: the queue offset after the last one.
    """

    first: int
    at: int
    end: int
    last: int


@frozen
class _Deletion:
    """A topic was deleted after the physical offset ``after``; the first message since then is at ``begin``."""

    after: int
    begin: int
    at: int

    def ends(self, old: _Generation, new: _Generation | None) -> bool:
        """Whether the topic had the queue ``old`` when it was deleted. ``new``: the queue after that, if it is seen.

        A queue whose messages were all stored after ``after`` may be old or new; it counts as new.
        """
        return old.first <= self.after and old.last < self.begin and (new is None or self.begin <= new.first)


def find_restarts(
    queues: Queues,
    before: Mapping[str, TopicOffsets],
    physical_offsets: Callable[[str, Collection[int]], Mapping[tuple[int, int], int]],
    log_start: int,
) -> dict[str, list[QueueRestart]]:
    """The restarts of queues by topic, in order.

    ``queues``: the new entries. ``before``: the queues when the night begins. ``physical_offsets`` returns those of a
    topic's stored entries at some queue offsets, by queue id and queue offset. The log begins at ``log_start``.
    """
    ends = {topic: known.ends_by_queue for topic, known in before.items()}
    restarted = {
        topic
        for (topic, queue_id), progress in queues.items()
        if len(progress) > 1 or (progress[0].first == 0 and ends.get(topic, {}).get(queue_id, 0) > 0)
    }
    restarts = {}
    for topic in sorted(restarted):
        stored = {queue_id: end for queue_id, end in ends.get(topic, {}).items() if end > 0}
        place = physical_offsets(topic, {0, *(end - 1 for end in stored.values())})
        generations: dict[int, list[_Generation]] = {}
        for queue_id, end in stored.items():
            first, last = (place.get((queue_id, offset), _NOT_STORED) for offset in (0, end - 1))
            generations[queue_id] = [_Generation(first, 0, end, last)]
        for (name, queue_id), progress in queues.items():
            if name == topic:
                generations[queue_id] = _continued(generations.get(queue_id, []), progress)
        restarts[topic] = _restarts(generations, log_start)
    return restarts


def _continued(known: Sequence[_Generation], progress: Sequence[QueueProgress]) -> list[_Generation]:
    """The generations of a queue with its new entries."""
    generations = list(known)
    for each in progress:
        if generations and each.first > 0:
            old = generations.pop()
            generations.append(_Generation(old.first, old.at, max(old.end, each.end), each.last))
        else:
            generations.append(_Generation(each.begin, each.begun_at, each.end, each.last))
    return generations


def _restarts(queues: Mapping[int, Sequence[_Generation]], log_start: int) -> list[QueueRestart]:
    """The restarts of the queues of a topic.

    If the last message of an old queue is still in the log, the topic was deleted, and with it all of its queues.
    Otherwise an operator may have removed this queue alone.
    """
    pairs = [(old, new) for queue_generations in queues.values() for old, new in pairwise(queue_generations)]
    deletions = [_Deletion(old.last, new.first, new.at) for old, new in pairs if old.last >= log_start]
    deletions.sort(key=lambda deletion: deletion.begin)
    restarts = []
    for queue_id, generations in queues.items():
        for number, old in enumerate(generations):
            new = generations[number + 1] if number + 1 < len(generations) else None
            deletion = next((each for each in deletions if each.ends(old, new)), None)
            if deletion is not None:
                restarts.append(QueueRestart(queue_id, deletion.begin, deletion.at, old.end))
            elif new is not None:
                restarts.append(QueueRestart(queue_id, new.first, new.at, old.end, keeps_offsets=True))
    return sorted(restarts, key=lambda restart: (restart.at, restart.commitlog_offset))


# The queues of a whole night.


@frozen(eq=False)
class QueueNight:
    """The new entries of a queue: the first offset, the offset after the last one, and ``ends`` as of QueueProgress.

    If the queue began again (``restart``, the last one), these are of the present queue, and ``ended`` is the number of
    offsets of the old ones. ``entries`` counts those of all.
    """

    first: int
    end: int
    entries: int
    ends: Int64s
    restart: QueueRestart | None = None
    ended: int = 0


def queue_nights(
    new: Queues,
    late: Queues,
    begins: Mapping[str, Mapping[int, int]],
    restarts: Mapping[str, Sequence[QueueRestart]],
    instants: Mapping[str, Int64s],
) -> dict[str, dict[int, QueueNight]]:
    """The queues with new entries, and those that began again, by topic and queue id.

    ``new`` and ``late``: the entries of new messages, and of those that earlier nights could not read. ``begins``: the
    physical offsets with which queues had begun again before the night. ``instants``: those of ``ends``, by topic.
    """
    restarts_of_queues: defaultdict[Queue, list[QueueRestart]] = defaultdict(list)
    for topic, topic_restarts in restarts.items():
        for restart in topic_restarts:
            restarts_of_queues[topic, restart.queue_id].append(restart)
    nights: defaultdict[str, dict[int, QueueNight]] = defaultdict(dict)
    for queue in new.keys() | late.keys() | restarts_of_queues.keys():
        topic, queue_id = queue
        own = restarts_of_queues.get(queue, ())
        begin = own[-1].commitlog_offset if own else begins.get(topic, {}).get(queue_id, 0)
        count = len(instants.get(topic, ()))
        nights[topic][queue_id] = _queue_night([*new.get(queue, ()), *late.get(queue, ())], begin, own, count)
    return dict(nights)


def _queue_night(
    progress: Sequence[QueueProgress], begin: int, restarts: Sequence[QueueRestart], instants: int
) -> QueueNight:
    present = [each for each in progress if each.begin >= begin]
    return QueueNight(
        min((each.first for each in present), default=0),
        max((each.end for each in present), default=0),
        sum(each.entries for each in progress),
        reduce(np.maximum, (each.ends for each in present), np.zeros(instants, np.int64)),
        restarts[-1] if restarts else None,
        sum(restart.ended for restart in restarts),
    )
