"""Finds the queues that began again at offset 0, by the new entries of a night."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from filtering.consumption.offsets import TopicOffsets
from filtering.consumption.renewals import QueueRenewal
from jobs.night.tasks.queue_progress import QueueProgress, Queues

_NOT_STORED = -1
"""Instead of the physical offset of an entry that is not in the tables: it is older than all that are."""


@dataclass(frozen=True)
class _Generation:
    """The entries of a queue until it begins again: the physical offsets of the first and the last one.

    ``at``: when the first one was stored (ms). ``end``: the queue offset after the last one.
    """

    first: int
    at: int
    end: int
    last: int


@dataclass(frozen=True)
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


def find_renewals(
    queues: Queues,
    before: Mapping[str, TopicOffsets],
    places: Callable[[str, Collection[int]], Mapping[tuple[int, int], int]],
    log_start: int,
) -> dict[str, list[QueueRenewal]]:
    """The renewals of queues by topic, in order.

    ``queues``: the new entries. ``before``: the queues when the night begins. ``places`` returns the physical offsets
    of a topic's stored entries at some queue offsets, by queue id and queue offset. The log begins at ``log_start``.
    """
    ends = {topic: known.ends_by_queue for topic, known in before.items()}
    renewed = {
        topic
        for (topic, queue_id), progress in queues.items()
        if len(progress) > 1 or (progress[0].first == 0 and ends.get(topic, {}).get(queue_id, 0) > 0)
    }
    found = {}
    for topic in sorted(renewed):
        stored = {queue_id: end for queue_id, end in ends.get(topic, {}).items() if end > 0}
        place = places(topic, {0, *(end - 1 for end in stored.values())})
        generations: dict[int, list[_Generation]] = {}
        for queue_id, end in stored.items():
            first, last = (place.get((queue_id, offset), _NOT_STORED) for offset in (0, end - 1))
            generations[queue_id] = [_Generation(first, 0, end, last)]
        for (name, queue_id), progress in queues.items():
            if name == topic:
                generations[queue_id] = _continued(generations.get(queue_id, []), progress)
        found[topic] = _renewals(generations, log_start)
    return found


def _continued(known: Sequence[_Generation], progress: Sequence[QueueProgress]) -> list[_Generation]:
    """The generations of a queue with its new entries."""
    found = list(known)
    for each in progress:
        if found and each.first > 0:
            old = found.pop()
            found.append(_Generation(old.first, old.at, max(old.end, each.end), each.last))
        else:
            found.append(_Generation(each.begin, each.begun_at, each.end, each.last))
    return found


def _renewals(queues: Mapping[int, Sequence[_Generation]], log_start: int) -> list[QueueRenewal]:
    """The renewals of the queues of a topic.

    If the last message of an old queue is still in the log, the topic was deleted, and with it all of its queues.
    Otherwise an operator may have removed this queue alone.
    """
    pairs = [(old, new) for of_queue in queues.values() for old, new in pairwise(of_queue)]
    deletions = [_Deletion(old.last, new.first, new.at) for old, new in pairs if old.last >= log_start]
    deletions.sort(key=lambda deletion: deletion.begin)
    found = []
    for queue_id, generations in queues.items():
        for number, old in enumerate(generations):
            new = generations[number + 1] if number + 1 < len(generations) else None
            deletion = next((each for each in deletions if each.ends(old, new)), None)
            if deletion is not None:
                found.append(QueueRenewal(queue_id, deletion.begin, deletion.at, old.end))
            elif new is not None:
                found.append(QueueRenewal(queue_id, new.first, new.at, old.end, keeps_offsets=True))
    return sorted(found, key=lambda renewal: (renewal.at, renewal.commitlog_offset))
