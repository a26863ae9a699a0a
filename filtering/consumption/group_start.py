"""Where one group begins on one topic: at its first start, or once the broker has no offset of it any more.

Source: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.position import Position, first_position, known_offsets
from filtering.delivery.pull_window import FOREVER
from filtering.subscriptions.events import ConsumeFrom, ConsumeStart, GroupTopic, SubscriptionEvent
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX


class StartReason(StrEnum):
    """Why a group begins where it begins in a queue, in words for people and for a table."""

    COMMITTED = "the broker has its committed offset"
    RESET = "an operator set its offset"
    FIRST = "consume_from first"
    LAST = "consume_from last, and the broker has deleted the first message"
    LAST_WITH_FIRST_MESSAGE = "consume_from last, but the first message is still there"
    TIME = "consume_from a time, and the broker has deleted the first message"
    TIME_WITH_FIRST_MESSAGE = "consume_from a time, but the first message is still there"
    RETRY_TOPIC = "a retry topic is read from its first message"
    RETRY_TOPIC_WITH_TIME = "consume_from a time: a retry topic that lost its first message is read from its end"


def start_reason(topic: str, consume_from: ConsumeStart, has_first_message: bool) -> StartReason:
    """Why a group without an offset begins where it begins in a queue of ``topic``.

    ``has_first_message``: the broker still has the queue's first message, at offset 0. Then it answers 0 to a client
    that asks for the end or for a time.
    """
    is_time = not isinstance(consume_from, ConsumeFrom)
    if topic.startswith(RETRY_TOPIC_PREFIX):
        is_at_end = is_time and not has_first_message
        return StartReason.RETRY_TOPIC_WITH_TIME if is_at_end else StartReason.RETRY_TOPIC
    if consume_from is ConsumeFrom.FIRST:
        return StartReason.FIRST
    if is_time:
        return StartReason.TIME_WITH_FIRST_MESSAGE if has_first_message else StartReason.TIME
    return StartReason.LAST_WITH_FIRST_MESSAGE if has_first_message else StartReason.LAST


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

    def reasons(self, queue_ids: Iterable[int], at: int, resets: Iterable[SubscriptionEvent]) -> dict[int, StartReason]:
        """Why :meth:`position` is where it is, by queue id."""
        topic = self.key[1]
        renewals = self.broker_offsets.renewals.get(topic, ())
        known = known_offsets(self.key, at, self.offsets_so_far, resets, renewals)
        committed = known_offsets(self.key, at, self.offsets_so_far, (), renewals) if known else {}
        queues = self.broker_offsets.min_offsets.get(topic, {})
        has_all_first = not any(queues.values()) and (bool(queues) or self.broker_offsets.is_whole)
        found: dict[int, StartReason] = {}
        for queue_id in queue_ids:
            if queue_id in known:
                is_committed = committed.get(queue_id) == known[queue_id]
                found[queue_id] = StartReason.COMMITTED if is_committed else StartReason.RESET
            else:
                has_first_message = has_all_first or queues.get(queue_id) == 0
                found[queue_id] = start_reason(topic, self.consume_from, has_first_message)
        return found

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
