"""Where one group begins on one topic: at its first start, or once the broker has no offset of it any more.

Source: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.position import Position, first_position, known_offsets
from filtering.delivery.pull_window import FOREVER
from filtering.subscriptions.events import ConsumeStart, GroupTopic, SubscriptionEvent


@dataclass(frozen=True)
class GroupStart:
    """The group and topic ``key``, and what decides where it begins: offsets, and what its clients ask for."""

    key: GroupTopic
    consume_from: ConsumeStart
    offsets_so_far: OffsetsSoFar
    broker_offsets: BrokerOffsets

    def position(self, at: int, resets: Iterable[SubscriptionEvent]) -> Position:
        """Where it begins at ``at`` (ms), when it is online for the first time: at an offset that the broker has.

        Without one, where its clients ask for. ``resets``: its offset resets so far, in order.
        """
        begin = self._without_offsets(at)
        renewals = self.broker_offsets.renewals.get(self.key[1], ())
        begin.offsets.update(known_offsets(self.key, at, self.offsets_so_far, resets, renewals))
        return begin

    def position_anew(self, at: int, since: Position) -> Position:
        """Where it begins at ``at`` (ms) as at its first start; in other queues where an operator set it ``since``."""
        begin = self._without_offsets(at)
        return replace(begin, offsets=begin.offsets | since.offsets, reset=since.reset)

    def offsets(self, queue_ids: Iterable[int]) -> dict[int, int]:
        """By queue id, the offset at which it would begin now without any; FOREVER is the end of the queue."""
        begin = self._without_offsets(FOREVER)
        others = 0 if begin.stored_from is None else FOREVER
        return dict.fromkeys(queue_ids, others) | begin.offsets

    def _without_offsets(self, at: int) -> Position:
        return first_position(self.key[1], at, self.consume_from, self.broker_offsets)
