"""What groups pulled between two pops of a night: an operator switched them to pulls, and back, and no event has it.

A pop says where it began to read. What lies between there and the last message of the pop before was read by pops that
handed out nothing, so it does not match; or it was pulled. What matches is the proof of a switch. An operator may also
have moved the group's offset: then it was skipped. So it counts as delivered, and as uncertain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import SAVE_DELAY
from filtering.consumption.uncertainty import HELD_PULL_MS
from filtering.delivery.entries import Int64s, Queue
from filtering.delivery.message_filter import NightFilters
from filtering.delivery.pull_window import PullWindow, Reason, UncertainRange, WindowKind
from filtering.frozen import frozen
from filtering.pops.handed_out import NONE, PopOutcomes, number_in_force
from filtering.predicate import FALSE
from filtering.pulls import is_pulling
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow

_OF_MESSAGE = ["commitlog_offset", "store_timestamp", "tags", "reconsume_times"]
NOWHERE = np.empty(0, np.int64)


@frozen(eq=False)
class QueuedMessages:
    """Messages in the order of the log, with the columns _OF_MESSAGE.

    ``by_queue``: the positions of the messages of each topic and queue id by queue offset, and these offsets.
    """

    rows: pa.Table
    by_queue: Mapping[Queue, tuple[Int64s, Int64s]]

    @classmethod
    def of(cls, rows: pa.Table, positions: Iterable[tuple[Queue, Int64s]]) -> QueuedMessages:
        """``positions``: those of the rows of each queue."""
        offsets = rows["queue_offset"].to_numpy()
        by_queue = {queue: _by_queue_offset(own, offsets[own]) for queue, own in positions}
        return cls(rows.select(_OF_MESSAGE).combine_chunks(), by_queue)

    @cached_property
    def commitlog_offset(self) -> Int64s:
        return np.asarray(self.rows["commitlog_offset"])

    @cached_property
    def store_timestamp(self) -> Int64s:
        return np.asarray(self.rows["store_timestamp"])

    @property
    def recorded_until(self) -> int:
        """ms: what was stored later, just before the snapshot, may have been popped after the log was copied."""
        return int(self.store_timestamp.max(initial=0)) - SAVE_DELAY

    def followed_by(self, later: QueuedMessages) -> QueuedMessages:
        """These messages, and later ones of the log."""
        if not len(self.rows):
            return later
        by_queue, nothing = {}, (NOWHERE, NOWHERE)
        for queue in self.by_queue.keys() | later.by_queue.keys():
            first, first_offsets = self.by_queue.get(queue, nothing)
            last, last_offsets = later.by_queue.get(queue, nothing)
            own = np.append(first, last + len(self.rows))
            by_queue[queue] = _by_queue_offset(own, np.append(first_offsets, last_offsets))
        return QueuedMessages(pa.concat_tables([self.rows, later.rows]), by_queue)

    def find(self, pops: pa.Table, positions: Iterable[tuple[Queue, Int64s]]) -> Int64s:
        """The position of the message of each pop: the last one with its queue offset before the checkpoint, or NONE.

        A queue may have begun again. ``positions``: those of the pops of each queue.
        """
        at = np.full(len(pops), NONE, np.int64)
        places = self.commitlog_offset
        wanted, before = pops["queue_offset"].to_numpy(), pops["record_offset"].to_numpy()
        for queue, popped in positions:
            if queue not in self.by_queue:
                continue
            own, offsets = self.by_queue[queue]
            own_wanted, own_before = wanted[popped], before[popped]
            message_at = np.searchsorted(offsets, own_wanted, side="right") - 1
            while (is_later := (message_at >= 0) & (places[own[message_at]] > own_before)).any():
                message_at[is_later] -= 1
            is_stored = (message_at >= 0) & (offsets[message_at] == own_wanted)
            at[popped[is_stored]] = own[message_at[is_stored]]
        return at


def _by_queue_offset(own: Int64s, offsets: Int64s) -> tuple[Int64s, Int64s]:
    """Positions of a queue's messages and their queue offsets, in the order of these, and then of the log."""
    if (np.diff(offsets) > 0).all():
        return own, offsets
    order = np.lexsort((own, offsets))
    return own[order], offsets[order]


@frozen(eq=False)
class PassedOver:
    """What lies in queues between two pops of a group on a topic, and neither of them handed out.

    Elements are pauses: [``begin``, ``end``) are queue offsets, between pops at ``since`` and ``until`` (ms).
    ``commitlog_offset`` are the messages, each with its store time (ms) and the number of its pause in ``pause``.
    """

    queue_id: Int64s
    begin: Int64s
    end: Int64s
    since: Int64s
    until: Int64s
    commitlog_offset: Int64s
    store_timestamp: Int64s
    pause: Int64s


def passed_over(
    key: GroupTopic, pops: Sequence[Int64s], handed: Int64s, outcomes: PopOutcomes, messages: QueuedMessages, begin: int
) -> PassedOver | None:
    """What a group passed over on a topic; None if there is nothing. ``begin``: the physical offset of the night.

    ``pops``: what :func:`pauses` asks for. Those of the night are first: ``handed`` are the physical offsets of
    their messages. Others say how far the group had come when the night began and ended.
    """
    queue_id, popped_at, start_offset, queue_offset = pops
    last, first = outcomes.pauses(key, pops)
    start, stop = queue_offset[last] + 1, start_offset[first]
    nothing = NOWHERE, NOWHERE
    queues = {each: messages.by_queue.get((key[1], each), nothing) for each in np.unique(queue_id[last]).tolist()}
    at, pause = _stored_between(queues, queue_id[last], start, stop)
    places, times = messages.commitlog_offset[at], messages.store_timestamp[at]
    is_left = ~np.isin(places, handed) & (times < popped_at[first][pause])
    # The offsets with which the night began may be older than the last pops before it.
    is_left &= (places >= begin) | (last < len(handed))[pause]
    if not is_left.any():
        return None
    passed = queue_id[last], start, stop, popped_at[last], popped_at[first]
    return PassedOver(*passed, places[is_left], times[is_left], pause[is_left])


def _stored_between(
    stored_in: Mapping[int, tuple[Int64s, Int64s]], queue_id: Int64s, begin: Int64s, end: Int64s
) -> tuple[Int64s, Int64s]:
    """The positions of the messages between two offsets of queues, and the number of each one's pair of offsets.

    ``stored_in``: by queue id, the positions of its messages by queue offset, and these offsets. Queues that began
    again are left out.
    """
    found, pairs = [NOWHERE], [NOWHERE]
    for queue, (stored, offsets) in stored_in.items():
        if (np.diff(offsets) > 0).all() and (np.diff(stored) > 0).all():
            in_queue = np.flatnonzero(queue_id == queue)
            low, high = (np.searchsorted(offsets, each[in_queue]) for each in (begin, end))
            count = high - low
            found.append(stored[np.arange(count.sum()) + np.repeat(low - np.cumsum(count) + count, count)])
            pairs.append(np.repeat(in_queue, count))
    return np.concatenate(found), np.concatenate(pairs)


@frozen(eq=False)
class Unpopped:
    """What pops of a group passed over while one subscription was in force, whose filter ``window`` has.

    ``own``: the positions of these messages in ``passed``, in the order of the log.
    """

    window: PullWindow
    passed: PassedOver
    own: Int64s

    @property
    def commitlog_offset(self) -> Int64s:
        return self.passed.commitlog_offset[self.own]

    def pulls(self, matching: Int64s) -> Iterator[PullWindow]:
        """The pulls in the pauses with messages that match. ``matching``: their physical offsets."""
        passed = self.passed
        found = self.own[np.isin(self.commitlog_offset, matching)]
        is_earlier = passed.store_timestamp[found] < passed.since[passed.pause[found]]
        for is_such, kind in ((is_earlier, WindowKind.BACKLOG), (~is_earlier, WindowKind.ONLINE)):
            for at in np.unique(passed.pause[found[is_such]]).tolist():
                offsets = {int(passed.queue_id[at]): (int(passed.begin[at]), int(passed.end[at]))}
                since = int(passed.since[at])
                pull = replace(self.window, offsets=offsets, only_listed=True, kind=kind, reason=Reason.SWITCHED)
                if kind is WindowKind.BACKLOG:
                    yield replace(pull, stored_to=since, available_at=since)
                else:
                    yield replace(pull, stored_from=since, stored_to=int(passed.until[at]))


def unpopped(
    passed_over: Mapping[GroupTopic, PassedOver],
    states: Mapping[GroupTopic, Sequence[SubscriptionRow]],
    filters: NightFilters,
    broker: BrokerConfig,
) -> dict[str, list[Unpopped]]:
    """By topic, what pops passed over while the subscription did not change, also not for requests held before.

    Groups whose pulls the broker refuses pulled nothing.
    """
    by_topic = defaultdict(list)
    for key, passed in passed_over.items():
        rows = states.get(key, ())
        in_force = _in_force(rows, passed.since - HELD_PULL_MS, passed.until)[passed.pause]
        order = np.argsort(passed.commitlog_offset, kind="stable")
        for number in np.unique(in_force[in_force != NONE]).tolist():
            own, row = order[in_force[order] == number], rows[number]
            if not is_pulling(row, broker):
                continue
            window = PullWindow(filters.at(key, row.valid_from, row.valid_from), row.valid_from)
            by_topic[key[1]].append(Unpopped(window, passed, own))
    return by_topic


def _in_force(rows: Sequence[SubscriptionRow], since: Int64s, until: Int64s) -> Int64s:
    """The number of the state in force at the end of some times (ms); NONE if the group had another filter in them."""
    if not rows:
        return np.full(len(since), NONE, np.int64)
    consuming = [row for row in rows if row.is_consuming]
    changes = [row.valid_from for before, row in pairwise(consuming) if row.filter != before.filter]
    changed = np.array(changes, np.int64)
    is_steady = np.searchsorted(changed, since, side="right") == np.searchsorted(changed, until, side="right")
    number = number_in_force(rows, until)
    is_consuming = np.array([row.is_consuming for row in rows])[np.maximum(number, 0)]
    return np.where(is_steady & is_consuming & (number >= 0), number, NONE)


def uncertain_pulls(windows: Sequence[PullWindow]) -> list[UncertainRange]:
    """All messages of the windows that match are uncertain."""
    return [UncertainRange.in_window(each, FALSE, each.message_filter.delivered, Reason.SWITCHED) for each in windows]
