"""Pull windows: the messages that one subscription of a group filters, and when the group could first pull them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum, StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Int32s, Int64s
from filtering.delivery.message_filter import MessageFilter
from filtering.frozen import frozen
from filtering.predicate import FALSE, Predicate
from filtering.subscriptions.events import ConsumeMode, GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, FOREVER

NO_BEGIN, NO_END = -(2**63), 2**63 - 1
"""Limits of offsets, and of positions in a file: before and after all others."""

OffsetRange = tuple[int, int]
"""Queue offsets or physical offsets, the second exclusive."""
RangeOfQueue = tuple[int, OffsetRange]
"""A queue id and a range of its entries."""
EVERYWHERE: OffsetRange = (NO_BEGIN, NO_END)
Number = int | npt.NDArray[np.int64]
Flag = bool | npt.NDArray[np.bool_]


class WindowKind(Enum):
    """What a row of pull_windows stands for."""

    ONLINE = "online"
    """Filters messages that its night has read, and not those of earlier nights."""
    BACKLOG = "backlog"
    """Filters messages of earlier nights, too, which waited for the group."""
    RESET = "reset"
    """As BACKLOG, from an offset to which the group went back: it may have pulled the messages before."""
    LATE = "late"
    """Filters messages that an earlier night could not read: a window of that night, or of a later one."""
    LOST = "lost"
    """Messages that were gone before the group could pull them."""
    UNCERTAIN = "uncertain"
    """Messages that count as uncertain. ``reason`` says why: mostly a pull that was held when the filter changed."""


FILTERING = (WindowKind.ONLINE, WindowKind.BACKLOG, WindowKind.RESET)
"""The kinds of the windows that a night planned to filter messages with."""
PULLED = (*FILTERING, WindowKind.LATE)
"""The kinds of the windows whose messages the group pulled."""


class Reason(StrEnum):
    """Why a window begins where it begins, or why its messages are uncertain, in words for people and for a table.

    The texts are stored, so they stay.
    """

    WAS_ONLINE = "was online when the night began"
    WAS_BEHIND = "was behind when the night began"
    BROADCASTING = "a client that broadcasts was online"
    FIRST_START = "first start"
    RETURNED = "returned"
    ANSWERED = "the broker answers its pulls, which it refused before"
    OFFSETS_REMOVED = "begins as at its first start: the broker had no offset of it any more"
    CHANGED = "subscription changed"
    RESET = "reset by an operator"
    QUEUE_BEGAN_AGAIN = "a queue began again"
    NOT_READ = "no client read the queue before"
    REPLAY = "a replay"
    DELETED = "the broker deleted it before the group pulled it"

    # Which of two filters decided is not known.
    HELD_PULL = "the broker may have held a pull when the subscription changed"
    NEXT_REQUEST = "requests of the group may have carried the former subscription, or this one already"
    IN_ORDER = "the group consumes in order: what waited for an acknowledgement was popped with the new subscription"
    NOT_REGISTERED_YET = (
        "requests of a SimpleConsumer carry another subscription up to 5 minutes before it is registered"
    )
    UNTIL_NEW_CLIENT = "a gRPC PushConsumer asks with its former subscription until it restarts or gets other queues"
    CLIENTS_DIFFER = "clients of the group pop with different subscriptions, and the first that reads a message decides"
    CLIENTS_DISAGREE = "two clients of the group seem to disagree"
    READER_NOT_KNOWN = "which client of the group read it is not known: the messages have no queue ids"
    RESET_BY_CLIENTS = "the clients of an older broker reset offsets themselves, 10 to 20 s after the command"

    # Whether the group received it is not known.
    NOT_WATCHED = "what the group subscribed to was not seen"
    LEFT_PULL = "the broker may have held a pull when the group left: what that had not matched waited for the return"
    HANDED_OVER = (
        "a client came or left, of several that subscribe differently: what one had not committed, another reads"
    )
    IN_FLIGHT = "the group left, and may have received what it had not committed: that comes again"
    COMMITTED_AWAY = "the group committed it after it was seen to have left, or an operator moved its offset"
    BEGAN_AT_END = "the group began at the end of the queue, some time after it was registered"
    BEGAN_EARLIER = (
        "the group began at a message that the broker deleted in the same night, if it came there before that"
    )
    DELETED_TONIGHT = (
        "the broker deleted it, before the group came back or after it had pulled it: they came in the same night"
    )
    HELD_IN_OLD_QUEUE = (
        "the queue began again while the broker may have held a pull of the old one, which ends behind it"
    )
    LEFT = "the proxy held the last request of a SimpleConsumer that left: it may have taken this along"
    KILLED = "the broker was killed, and went on at offsets that it had saved before: groups popped this twice"
    OWN_OFFSETS = "a client that broadcasts keeps its offsets in a file of its own: where it went on is not known"
    CONFIG_NOT_KNOWN = (
        "no copy of the store had config/subscriptionGroup.json: how often the group pops a message, and whether in "
        "order, is not known"
    )
    SWITCHED = "pops passed over it though it matches: the group pulled meanwhile, or an operator moved its offset"

    OF_OLDER_VERSION = "a reason of an older mqsieve"


class StartReason(StrEnum):
    """Why a group begins where it begins in a queue at its first start, in words for people and for a table."""

    COMMITTED = "the broker has its committed offset"
    RESET = "an operator set its offset"
    FIRST = "consume_from first"
    LAST = "consume_from last, and the broker has deleted the first message"
    LAST_WITH_FIRST_MESSAGE = "consume_from last, but the first message is still there"
    TIME = "consume_from a time, and the broker has deleted the first message"
    TIME_WITH_FIRST_MESSAGE = "consume_from a time, but the first message is still there"
    TIME_OF_BROADCASTING = "consume_from a time, of a client that broadcasts"
    RETRY_TOPIC = "a retry topic is read from its first message"
    POP = "the first pop of a queue begins at its last message"
    POP_WITH_FIRST_MESSAGE = "the first pop of a queue begins at its first message while that is still there"
    RETRY_TOPIC_WITH_TIME = "consume_from a time: a retry topic that lost its first message is read from its end"

    @property
    def with_first_message(self) -> StartReason:
        """The reason if the broker still has the queue's first message, at offset 0.

        Then it answers 0 to a client that asks for the end or for a time.
        """
        return _WITH_FIRST_MESSAGE.get(self, self)


_WITH_FIRST_MESSAGE = {
    StartReason.LAST: StartReason.LAST_WITH_FIRST_MESSAGE,
    StartReason.TIME: StartReason.TIME_WITH_FIRST_MESSAGE,
    StartReason.POP: StartReason.POP_WITH_FIRST_MESSAGE,
    StartReason.RETRY_TOPIC_WITH_TIME: StartReason.RETRY_TOPIC,
}

BY_ANOTHER_FILTER = frozenset(
    [
        Reason.HELD_PULL, Reason.LEFT_PULL, Reason.HANDED_OVER, Reason.DELETED_TONIGHT, Reason.BEGAN_EARLIER,
        Reason.RESET_BY_CLIENTS,
    ]
)  # fmt: skip
"""Of uncertain windows in which another subscription says of a message whether it is uncertain."""
RECEIPT_NOT_KNOWN = BY_ANOTHER_FILTER - {Reason.HELD_PULL} | {
    Reason.NOT_WATCHED, Reason.COMMITTED_AWAY, Reason.IN_FLIGHT, Reason.BEGAN_AT_END,
    Reason.HELD_IN_OLD_QUEUE,
}  # fmt: skip
"""Of uncertain windows in which it is not known whether, or under which subscription, the group received messages.

Those of groups that pop or broadcast are uncertain as a whole, and not listed.
"""


def is_about(kind: WindowKind, night: int, first: Number, is_late: Flag) -> Any:
    """Whether a window of a night filters the messages in it. Uncertain ones are about messages of all nights.

    Nights are numbered in order. ``first``: the night that first filtered the messages; ``is_late``: whether an earlier
    one could not read them. Numbers, or arrays with an element for each message.
    """
    match kind:
        case WindowKind.UNCERTAIN:
            return is_late | np.True_
        case WindowKind.ONLINE:
            return (first == night) & np.logical_not(is_late)
        case WindowKind.LATE:
            return (first == night) & is_late
        case _:
            return np.where(is_late, first < night, first <= night)


@frozen(slots=True)
class PullWindow:
    """The messages of a topic that ``message_filter`` filters for its group.

    They were stored in [``stored_from``, ``stored_to``) (ms). ``offsets`` limits them by queue id; a queue that is not
    listed has all of its entries, or none with ``only_listed``. ``physical_ranges`` limits them by queue id to physical
    offsets, in queues that began again. ``subscription_from`` is the valid_from of the subscription. ``available_at``
    (ms) is when the group could first pull them; None: when each was stored. ``reason``: why it begins where it begins.
    ``is_of_client``: the window is of one client, which checks other tags than the group's other clients. ``mode``: how
    the group gets them.
    """

    message_filter: MessageFilter
    subscription_from: int
    stored_from: int = BEGINNING
    stored_to: int = FOREVER
    available_at: int | None = None
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)
    only_listed: bool = False
    physical_ranges: Mapping[int, OffsetRange] = field(default_factory=dict)
    kind: WindowKind = WindowKind.ONLINE
    reason: Reason | StartReason = Reason.WAS_ONLINE
    is_of_client: bool = False
    mode: ConsumeMode = ConsumeMode.PULL

    @property
    def key(self) -> GroupTopic:
        return self.message_filter.key

    @property
    def consumer_group(self) -> str:
        return self.message_filter.consumer_group

    @property
    def topic(self) -> str:
        return self.message_filter.topic

    @property
    def without_bit_map(self) -> PullWindow:
        """The same window, in which the broker does not use the filter bit map."""
        return replace(self, message_filter=replace(self.message_filter, bit_pos=()))

    def range_of(self, queue_id: int) -> OffsetRange:
        """The offsets of a queue in it; from 0 to 0 if the queue is left out."""
        return self.offsets.get(queue_id, (0, 0) if self.only_listed else (0, NO_END))

    def physical_range_of(self, queue_id: int) -> OffsetRange:
        """The physical offsets of a queue in it."""
        return self.physical_ranges.get(queue_id, EVERYWHERE)

    def covers(self, queue_id: int, queue_offset: Number, commitlog_offset: Number, stored_at: Number) -> Any:
        """Whether messages of a queue are in it; ``stored_at``: ms. For arrays, an array with an element for each."""
        (low, high), (begin, end) = self.range_of(queue_id), self.physical_range_of(queue_id)
        return (
            (self.stored_from <= stored_at) & (stored_at < self.stored_to)
            & (low <= queue_offset) & (queue_offset < high)
            & (begin <= commitlog_offset) & (commitlog_offset < end)
        )  # fmt: skip

    def up_to(self, offsets: Mapping[int, int]) -> PullWindow:
        """The part of the window before an offset of each of these queues, by queue id."""
        ranges = dict(self.offsets)
        for queue_id, offset in offsets.items():
            if queue_id in ranges or not self.only_listed:
                low, high = self.range_of(queue_id)
                ranges[queue_id] = low, min(high, offset)
        return replace(self, offsets=ranges)


@frozen(slots=True)
class UncertainRange:
    """Messages of which it is not known which of two filters they met: mostly those before and after a change.

    One of the two may be FALSE: then the group may not have received them at all. Messages stored in [``stored_from``,
    ``stored_to``) (ms) that match only one of ``before`` and ``after`` count as uncertain, in each queue up to the
    first message in this time that matches ``until``. ``changed_at``: the valid_from (ms) of the subscription after the
    change. ``offsets``, ``only_listed``, ``physical_ranges``, ``reason`` and ``mode`` are as in a PullWindow.
    """

    consumer_group: str
    topic: str
    before: Predicate
    after: Predicate
    stored_from: int
    stored_to: int
    until: Predicate = FALSE
    changed_at: int = BEGINNING
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)
    only_listed: bool = False
    physical_ranges: Mapping[int, OffsetRange] = field(default_factory=dict)
    reason: Reason = Reason.HELD_PULL
    mode: ConsumeMode = ConsumeMode.PULL

    @classmethod
    def in_window(cls, window: PullWindow, before: Predicate, after: Predicate, reason: Reason) -> UncertainRange:
        """The messages of a window of which it is not known which of two filters they met."""
        return cls(
            *window.key, before, after, window.stored_from, window.stored_to, FALSE, window.subscription_from,
            window.offsets, window.only_listed, window.physical_ranges, reason, window.mode,
        )  # fmt: skip


def ranges_of(queue_ids: Int32s, listed: Iterable[RangeOfQueue], unlisted: OffsetRange) -> tuple[Int64s, Int64s]:
    """The beginnings and the ends of the ranges of some queues."""
    by_queue = dict(listed)
    ranges = [by_queue.get(queue_id, unlisted) for queue_id in queue_ids.tolist()]
    low, high = np.ascontiguousarray(np.array(ranges, np.int64).reshape(-1, 2).T)
    return low, high


# Which filters set bits in the filter bit maps, and when.
#
# Source: org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap.


@frozen(slots=True)
class FilterDataInForce:
    """A ConsumerFilterData, dead or alive, and the interval (ms, end exclusive) in which the broker had it."""

    predicate: Predicate
    bit_pos: tuple[int, ...]
    valid_from: int
    valid_to: int = FOREVER


def filter_data_in_force(
    history: Iterable[SubscriptionRow], broker: BrokerConfig
) -> dict[str, list[FilterDataInForce]]:
    """By topic, the filter data that the broker had, and when. Empty if the broker computes no bit maps."""
    if not broker.calculates_bit_maps:
        return {}
    by_topic: dict[str, list[FilterDataInForce]] = defaultdict(list)
    for row in history:
        data = row.filter_data
        if data is not None and data.compiled is not None:
            by_topic[row.topic].append(
                FilterDataInForce(data.compiled.predicate, data.bit_pos, row.valid_from, row.end)
            )
    return dict(by_topic)
