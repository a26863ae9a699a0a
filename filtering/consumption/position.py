"""Where a group goes on in its queues when it pulls for the first time, or again.

Source: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.renewals import QueueRenewal
from filtering.delivery.pull_window import BEGINNING
from filtering.subscriptions.events import ConsumeFrom, ConsumeStart, GroupTopic, SubscriptionEvent
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX


@dataclass
class Position:
    """Where a group that does not pull will go on: at ``offsets``, by queue id.

    In other queues it goes on at their first entry, or with ``stored_from`` at what was stored since then (ms). An
    operator set the offsets of the queues in ``reset``.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    stored_from: int | None = None
    reset: set[int] = field(default_factory=set)

    def begin_again(self, renewal: QueueRenewal) -> None:
        """A queue begins again. Without an offset at the broker, the group begins at its first entry."""
        if renewal.keeps_offsets:
            self.offsets.setdefault(renewal.queue_id, renewal.ended)
        else:
            self.offsets[renewal.queue_id] = 0
            self.reset.discard(renewal.queue_id)


def first_position(topic: str, at: int, consume_from: ConsumeStart, broker_offsets: BrokerOffsets) -> Position:
    """Where a group without offsets begins at ``at`` (ms).

    In its retry topic, it begins at the first entry, or with a time at the end.
    """
    if topic.startswith(RETRY_TOPIC_PREFIX):
        consume_from = ConsumeFrom.FIRST if isinstance(consume_from, ConsumeFrom) else ConsumeFrom.LAST
    known = broker_offsets.min_offsets.get(topic, {})
    shortened = {queue_id: offset for queue_id, offset in known.items() if offset > 0}
    if consume_from is ConsumeFrom.FIRST:
        return Position(shortened)
    stored_from = at if isinstance(consume_from, ConsumeFrom) else min(consume_from, at)
    if not known and not broker_offsets.is_whole:
        return Position(stored_from=stored_from)
    # The broker answers 0 instead of the end, or the time, while a queue still has its first entry.
    if not shortened:
        return Position()
    if isinstance(consume_from, ConsumeFrom):
        return Position(dict.fromkeys(known.keys() - shortened.keys(), 0), stored_from=stored_from)
    return Position({queue_id: broker_offsets.first_since(topic, queue_id, stored_from) for queue_id in shortened})


def known_offsets(
    key: GroupTopic,
    at: int,
    offsets_so_far: OffsetsSoFar,
    resets: Iterable[SubscriptionEvent],
    renewals: Iterable[QueueRenewal] = (),
) -> dict[int, int]:
    """By queue id, the offsets that the broker has at ``at`` (ms) for a group that was never online.

    It has those of the last snapshot, or those that an operator set; the later ones count. Where a queue began again
    since then with its topic, it has none. ``resets`` and ``renewals`` are in order.
    """
    night = offsets_so_far.as_of
    found = offsets_so_far.committed(key)
    is_removed = offsets_so_far.removed(key)
    of_snapshot = set(found)
    began = {each.queue_id: each.at for each in renewals if each.at < at and not each.keeps_offsets}
    for queue_id in began:
        found.pop(queue_id, None)
    for reset in resets:
        queue_id, offset = reset.queue_id or 0, reset.queue_offset or 0
        is_later = night is None or reset.at > night
        began_at = began.get(queue_id, offsets_so_far.began_at.get((key[1], queue_id), BEGINNING))
        if not began_at < reset.at < at:
            continue
        if is_later or not (is_removed or queue_id in of_snapshot):
            found[queue_id] = offset
    return found
