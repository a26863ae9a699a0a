"""How far each queue came in a night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from filtering.consumption.renewals import QueueRenewal
from filtering.delivery.entries import Int64s
from jobs.night.tasks.queue_progress import QueueProgress, Queues


@dataclass(frozen=True, eq=False)
class QueueNight:
    """The new entries of a queue: the first offset, the offset after the last one, and ``ends`` as of QueueProgress.

    If the queue began again (``renewal``, the last one), these are of the present queue, and ``ended`` is the number of
    offsets of the old ones. ``entries`` counts those of all.
    """

    first: int
    end: int
    entries: int
    ends: Int64s
    renewal: QueueRenewal | None = None
    ended: int = 0


def queue_nights(
    new: Queues,
    late: Queues,
    begins: Mapping[str, Mapping[int, int]],
    renewals: Mapping[str, Sequence[QueueRenewal]],
    instants: Mapping[str, Int64s],
) -> dict[str, dict[int, QueueNight]]:
    """The queues with new entries, and those that began again, by topic and queue id.

    ``new`` and ``late``: the entries of new messages, and of those that earlier nights could not read. ``begins``: the
    physical offsets with which queues had begun again before the night. ``instants``: those of ``ends``, by topic.
    """
    of_queues: defaultdict[tuple[str, int], list[QueueRenewal]] = defaultdict(list)
    for topic, of_topic in renewals.items():
        for renewal in of_topic:
            of_queues[topic, renewal.queue_id].append(renewal)
    found: defaultdict[str, dict[int, QueueNight]] = defaultdict(dict)
    for queue in new.keys() | late.keys() | of_queues.keys():
        topic, queue_id = queue
        own = of_queues.get(queue, ())
        begin = own[-1].commitlog_offset if own else begins.get(topic, {}).get(queue_id, 0)
        count = len(instants.get(topic, ()))
        found[topic][queue_id] = _queue_night([*new.get(queue, ()), *late.get(queue, ())], begin, own, count)
    return dict(found)


def _queue_night(
    progress: Sequence[QueueProgress], begin: int, renewals: Sequence[QueueRenewal], instants: int
) -> QueueNight:
    present = [each for each in progress if each.begin >= begin]
    return QueueNight(
        min((each.first for each in present), default=0),
        max((each.end for each in present), default=0),
        sum(each.entries for each in progress),
        reduce(np.maximum, (each.ends for each in present), np.zeros(instants, np.int64)),
        renewals[-1] if renewals else None,
        sum(renewal.ended for renewal in renewals),
    )
