"""Queues that begin again at offset 0.

If a topic is deleted and created again, its queues begin again, and its groups have no offsets any more
(TopicConfigManager, ConsumerOffsetManager.cleanOffsetByTopic). If an operator removes an expired queue, of which no
message is left in the log (mqadmin cleanExpiredCQ), the groups keep their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from filtering.delivery.pull_window import BEGINNING, FOREVER, OffsetRange


@dataclass(frozen=True)
class QueueRenewal:
    """A queue began again, with the message at the physical offset ``commitlog_offset``, stored at ``at`` (ms).

    If its topic was deleted, that is the first message of any of the topic's new queues. ``ended`` is the offset after
    the last entry of the old queue. ``keeps_offsets``: the groups' offsets stayed.
    """

    queue_id: int
    commitlog_offset: int
    at: int
    ended: int
    keeps_offsets: bool = False


def places_at(
    begins: Mapping[int, int], renewals: Iterable[QueueRenewal], at: int, log_start: int
) -> dict[int, OffsetRange]:
    """By queue id, the physical offsets of the entries that a queue has at ``at`` (ms), if it began again.

    ``begins``: when the night begins, the physical offsets with which queues began again.
    ``renewals`` are those of the night. Messages before ``log_start`` are not in an old queue any more.
    """
    by_queue: dict[int, list[QueueRenewal]] = {}
    for renewal in renewals:
        by_queue.setdefault(renewal.queue_id, []).append(renewal)
    found = {queue_id: (begin, FOREVER) for queue_id, begin in begins.items()}
    for queue_id, of_queue in by_queue.items():
        before = [renewal.commitlog_offset for renewal in of_queue if renewal.at < at]
        after = [renewal.commitlog_offset for renewal in of_queue if renewal.at >= at]
        begin = max(before, default=begins.get(queue_id, BEGINNING))
        found[queue_id] = (max(begin, log_start), min(after)) if after else (begin, FOREVER)
    return found
