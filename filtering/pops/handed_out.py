"""Which messages pops handed out, and what became of them, from the record of a broker.

A *checkpoint* says that a message was handed out, or that it stays invisible for longer: a client that asks for more
time, or for a later redelivery, makes the broker append a checkpoint of this one message, and then the acknowledgement
of the former one. That is a *renewal*, and no delivery. After an offset reset, a message is handed out again: then the
former checkpoint is not acknowledged after the new one, or later. So it is when a broker that was killed hands out
again what it had handed out since it saved its offsets.

Source: PopMessageProcessor, PopMessageResultFilterImpl, PullAPIWrapper, AckMessageProcessor,
ChangeInvisibleTimeProcessor, PopReviveService.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.consumption.uncertainty import HELD_PULL_MS
from filtering.delivery import Outcome
from filtering.delivery.entries import Int64s, is_given_up
from filtering.frozen import frozen
from filtering.names import subscribed_topic
from filtering.pops.modes import Interval, PopGroups
from filtering.sql92 import Expressions
from filtering.subscriptions.events import GRPC_SIMPLE, GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.history import states_by_key
from filtering.subscriptions.inconsistency import differing_states
from filtering.subscriptions.subscription_row import CompiledSubscription, SubscriptionRow, compile_client_filter
from filtering.tags_code import tags_codes
from filtering.time_spans import DAY, FOREVER

NONE = -1
"""Instead of a time, an offset, a position or another number that is not there."""
RENEWAL = 5_000
"""ms: after a renewal, the broker acknowledges the former checkpoint in the same request; up to 151 ms were seen."""


@frozen(eq=False)
class Records:
    """Records of messages, in any order and possibly twice: checkpoints or acknowledgements.

    ``message``: a number for each group, topic, queue and queue offset. ``popped_at`` (ms) is that of the pop;
    ``commitlog_offset`` and ``store_timestamp`` (ms) are those of the record.
    """

    message: Int64s
    popped_at: Int64s
    commitlog_offset: Int64s
    store_timestamp: Int64s

    def __len__(self) -> int:
        return len(self.message)

    def take(self, at: Int64s) -> Records:
        return Records(self.message[at], self.popped_at[at], self.commitlog_offset[at], self.store_timestamp[at])

    def once(self) -> Int64s:
        """The positions of the records without copies, in the order of messages and of the log."""
        order = np.lexsort((self.commitlog_offset, self.popped_at, self.message))
        message, popped_at = self.message[order], self.popped_at[order]
        is_first = _is_other_than_before(message) | _is_other_than_before(popped_at)
        first: Int64s = order[is_first]
        message, offset = self.message[first], self.commitlog_offset[first]
        is_in_order = (np.diff(message) > 0) | (np.diff(offset) > 0)
        return first if is_in_order.all() else first[np.lexsort((offset, message))]


@frozen(eq=False)
class HandedOut:
    """The deliveries of a record: one for each time that a message was handed out.

    ``checkpoint`` is the position of its checkpoint, ``last`` that of its last renewal, or the same. Times are in ms,
    or NONE. ``visible_at``: when the message can be popped again.
    """

    checkpoint: Int64s
    last: Int64s
    visible_at: Int64s
    acknowledged_at: Int64s

    def __len__(self) -> int:
        return len(self.checkpoint)


def handed_out(
    checkpoints: Records,
    visible_at: Int64s,
    is_single: NDArray[np.bool_],
    acknowledgements: Records,
    is_copy: NDArray[np.bool_],
) -> HandedOut:
    """The deliveries of a record. ``checkpoints`` may have copies.

    ``visible_at`` (ms): when the message of each checkpoint can be popped again. ``is_single``: whether it is of one
    message at which it begins, as a renewal is. ``is_copy``: which acknowledgements were stored when they were due.
    A checkpoint at the very end of the record, whose acknowledgement may not be written yet, is a renewal if the
    former one has not ended.
    """
    order = checkpoints.once()
    message, popped_at = checkpoints.message[order], checkpoints.popped_at[order]
    at = checkpoints.commitlog_offset[order]
    ends = visible_at[order]
    acked_once = acknowledgements.once()
    acked = acknowledgements.take(acked_once)
    ack = matching((acked.message, acked.popped_at), (message, popped_at))
    acknowledged = ack != NONE
    acked_offset = np.where(acknowledged, acked.commitlog_offset[ack], NONE) if len(acked) else ack
    acked_at = np.where(acknowledged, acked.store_timestamp[ack], NONE) if len(acked) else ack
    is_acked_by_copy = acknowledged & is_copy[acked_once][ack] if len(acked) else acknowledged
    follows = ~_is_other_than_before(message)
    before = np.maximum(np.arange(len(order)) - 1, 0)
    is_soon = is_acked_by_copy[before] | (acked_at[before] <= popped_at + RENEWAL)
    is_acknowledged_after = is_soon & (acked_offset[before] > at)
    is_last = at > acked.commitlog_offset.max(initial=NONE)
    may_be_acknowledged = is_last & ~acknowledged[before] & (popped_at < ends[before])
    is_renewal = follows & is_single[order] & (is_acknowledged_after | may_be_acknowledged)
    first = np.flatnonzero(~is_renewal)
    last = np.append(first[1:], len(order)) - 1
    return HandedOut(order[first], order[last], ends[last], acked_at[last])


PAUSE = 1_000
"""ms: a client that is switched to pulls, and pops again, allocates its queues twice, at least so long apart."""


def pauses(queue: Int64s, popped_at: Int64s, start_offset: Int64s, queue_offset: Int64s) -> tuple[Int64s, Int64s]:
    """Where a pop began to read beyond the last message that the pop before it handed out, after a PAUSE.

    Arrays have an element for each message that a pop handed out: its queue, when the pop was (ms), where it began to
    read, and the message. Returns the positions of the last message before each pause and of the first one after it.
    """
    order = np.lexsort((queue_offset, start_offset, popped_at, queue))
    before, after = order[:-1], order[1:]
    is_pause = (queue[before] == queue[after]) & (popped_at[after] - popped_at[before] >= PAUSE)
    is_pause &= start_offset[after] > queue_offset[before] + 1
    return before[is_pause], after[is_pause]


def numbered(columns: Sequence[Int64s]) -> Int64s:
    """A number for each row: the same for rows with the same values, and only for them."""
    numbers, radix = np.zeros(len(columns[0]), np.int64), 1
    if not len(numbers):
        return numbers
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if radix * (high - low + 1) > _GREATEST:
            numbers, radix = _ranks(numbers), len(numbers)
            column, low, high = _ranks(column), 0, len(column)
        radix *= high - low + 1
        numbers *= high - low + 1
        numbers += column
        numbers -= low
    return numbers


_GREATEST = np.iinfo(np.int64).max


def _ranks(values: Int64s) -> Int64s:
    """The rank of each value among the distinct ones."""
    _, ranks = np.unique(values, return_inverse=True)
    return ranks


def matching(keys: Sequence[Int64s], wanted: Sequence[Int64s]) -> Int64s:
    """For each of ``wanted``, the position of the row of ``keys`` with the same values; NONE if there is none.

    The first of ``wanted`` with some values gets the first row of ``keys``, the second the second, and so on.
    """
    count = len(keys[0])
    numbers = numbered([np.concatenate(pair) for pair in zip(keys, wanted, strict=True)])
    order = np.argsort(numbers, kind="stable")  # of equal numbers, those of keys are first
    at, begin = np.arange(len(order)), _begin_of_equal(numbers[order])
    is_wanted = order >= count
    keys_before = np.append(0, np.cumsum(~is_wanted))
    begin, at, wanted_row = begin[is_wanted], at[is_wanted], order[is_wanted] - count
    equal_keys = keys_before[at] - keys_before[begin]
    nth_wanted = at - begin - equal_keys
    has_key = nth_wanted < equal_keys
    rows = np.full(len(wanted_row), NONE, np.int64)
    rows[wanted_row[has_key]] = order[(begin + nth_wanted)[has_key]]
    return rows


def nth(values: Int64s) -> Int64s:
    """For each row, how many before it have its value."""
    order = np.argsort(values, kind="stable")
    before = np.empty(len(order), np.int64)
    before[order] = np.arange(len(order)) - _begin_of_equal(values[order])
    return before


def _is_other_than_before(values: Int64s) -> NDArray[np.bool_]:
    """Which values differ from the one before them; the first one does."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _begin_of_equal(ordered: Int64s) -> Int64s:
    """For each of some values in order, the position of the first one that is equal."""
    begin: Int64s = np.maximum.accumulate(np.where(_is_other_than_before(ordered), np.arange(len(ordered)), 0))
    return begin


# What comes again.


REVIVED_WITHIN = DAY
"""ms: so long after the end of the invisible time a night looks for redeliveries and acknowledgements."""


def attempts(reconsume_times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The number of the attempt in which messages are handed out that were redelivered so often before."""
    return pc.add(reconsume_times, pa.scalar(1, pa.int32()))


def redeliveries(retried: Sequence[Int64s], popped: Sequence[Int64s]) -> Int64s:
    """For each message that was popped, the position of its redelivery among ``retried``; NONE if there is none.

    It is the message on a retry topic with the same UNIQ_KEY, tried once more. Both have the number of the group and
    the topic that it subscribes to, that of the UNIQ_KEY (NONE: there is none), and ``retried`` the reconsumeTimes,
    ``popped`` the attempts. If a message was popped and redelivered twice, after an offset reset, the first redelivery
    is of the first of ``popped``.
    """
    return np.where(popped[1] != NONE, matching(retried, popped), NONE)


# Which of the messages that pops handed out are dropped by their tags.
#
# The broker compares hashes of tags with the subscription of the request. Then the proxy or the client compares the
# tags themselves, with the same subscription. No record has it: it is the one in force, or that of another client of
# the group. So a message is certain only if all of the subscriptions that could have handed it out decide alike.


Mask = NDArray[np.bool_]


@frozen(eq=False)
class TagCheck:
    """Of some messages: which are dropped, and of which that is not known.

    ``is_in_force``: whether it was the subscription in force that handed it out, as far as clients are known.
    """

    is_dropped: Mask
    is_uncertain: Mask
    is_in_force: Mask


def check_tags(
    tags: pa.ChunkedArray,
    in_force: CompiledSubscription,
    others: Sequence[CompiledSubscription] = (),
    at_other_times: Sequence[CompiledSubscription] = (),
) -> TagCheck:
    """What becomes of messages with these ``tags`` (a text or null each), which pops handed out.

    ``others``: the subscriptions of clients that do not have the one in force. If the clients decide differently, the
    subscription in force decides. A message whose hash is in none of them was handed out by a request with another
    subscription: a client changed its tags before it registered them, or events without client ids hide that clients
    disagree. It counts as received. Then requests may carry one of ``at_other_times``, so what these decide otherwise
    is uncertain, too.
    """
    masks = _Masks.of(tags, (in_force, *others))
    carries_other = ~masks.handed_out[0]
    dropped_in_force = ~carries_other & ~masks.kept[0]
    is_uncertain, is_unknown = masks.is_uncertain, ~masks.handed_out.any(axis=0)
    is_in_force = ~carries_other & ~is_uncertain
    is_dropped = np.where(is_uncertain, dropped_in_force, masks.is_dropped)
    if is_unknown.any() and at_other_times:
        is_uncertain = is_uncertain | _Masks.of(tags, (in_force, *others, *at_other_times)).is_uncertain
    return TagCheck(is_dropped, is_uncertain, is_in_force)


@frozen(eq=False)
class _Masks:
    """By subscription and message, whether it may have handed out the message, and whether its client then keeps it."""

    handed_out: Mask
    kept: Mask

    @classmethod
    def of(cls, tags: pa.ChunkedArray, subscriptions: Sequence[CompiledSubscription]) -> _Masks:
        hashes = np.array(tags_codes(tags))
        masks = zip(*(_masks(tags, hashes, subscription) for subscription in subscriptions), strict=True)
        return cls(*map(np.array, masks))

    @property
    def is_dropped(self) -> Mask:
        """Whether a subscription that may have handed out the message drops it."""
        return np.array((self.handed_out & ~self.kept).any(axis=0))

    @property
    def is_uncertain(self) -> Mask:
        """Whether subscriptions decide differently, or none may have handed out the message."""
        is_kept = np.array((self.handed_out & self.kept).any(axis=0))
        return np.array(is_kept == self.is_dropped)


def _masks(tags: pa.ChunkedArray, hashes: NDArray[np.int64], subscription: CompiledSubscription) -> tuple[Mask, Mask]:
    """Which messages the broker may hand out to a request with a subscription, and which its client then keeps."""
    if not subscription.tags_set:
        return np.ones(len(tags), bool), np.ones(len(tags), bool)
    is_kept = pc.is_in(tags, value_set=pa.array(subscription.tags_set, pa.string()))
    return np.isin(hashes, subscription.code_set or ()), np.array(is_kept)


# Whether clients got what pops handed out.


OUTCOMES = (Outcome.DELIVERED, Outcome.DROPPED_BY_CLIENT, Outcome.DEAD)
UNKNOWN_SUBSCRIPTION = 0
"""As ``subscription_from``: no event says what the group subscribed to when it popped, or it was something else."""
PopsByKey = Sequence[tuple[GroupTopic, Int64s]]
"""Groups and topics, retry topics too, each with the positions of its pops."""
PopsInForce = Sequence[tuple[Int64s, SubscriptionRow]]
"""Subscriptions, each with the positions of the pops at which it was in force."""


def number_in_force(states: Sequence[SubscriptionRow], at: Int64s) -> Int64s:
    """The number of the state of one group and topic that is in force at each time (ms); NONE before the first."""
    return np.searchsorted(np.array([state.valid_from for state in states], np.int64), at, side="right") - 1


def are_within(intervals: Iterable[Interval], first: Int64s, last: Int64s) -> Mask:
    """Whether two times (ms), ``first`` and ``last``, are in the same interval."""
    is_within = np.zeros(len(first), bool)
    for since, until in intervals:
        is_within |= (since <= first) & (last < until)
    return is_within


class PopOutcomes:
    """Whether clients got what pops handed out, and how far the record leaves it open.

    ``subscriptions``: the states by group and topic. ``recorded``: when groups popped topics, as the record says.
    """

    def __init__(
        self,
        subscriptions: Mapping[GroupTopic, Sequence[SubscriptionRow]],
        events: Sequence[SubscriptionEvent],
        recorded: Mapping[GroupTopic, Sequence[Interval]],
        groups: PopGroups,
        expressions: Expressions,
    ) -> None:
        self._subscriptions, self._recorded, self._expressions = subscriptions, recorded, expressions
        self._groups = groups
        self.mode_was_set = groups.set_to_pop | groups.set_to_pull
        """The groups and topics of remoting clients whose mode an operator once set."""
        self._differing = states_by_key(differing_states(events))
        """When clients of groups had different subscriptions, by group and topic."""
        self._left = leaves_of_simple_consumers(events)

    def in_force(self, pops: PopsByKey, popped_at: Int64s) -> PopsInForce:
        """The subscriptions that were in force when groups popped (ms), each with the positions of its pops."""
        found = []
        for (group, topic), own in pops:
            rows = self._subscriptions.get((group, subscribed_topic(group, topic)), ())
            number = number_in_force(rows, popped_at[own])
            found += [(own[number == each], rows[each]) for each in np.unique(number[number != NONE]).tolist()]
        return found

    def for_nobody(self, in_force: PopsInForce, is_acknowledged: Mask) -> Mask:
        """Which pops were for nobody, as far as is known: no client consumed then, and none acknowledged them.

        A proxy holds the last request of a client that left: what it pops is for nobody, and comes again. But if the
        client was still there, it may have got it.
        """
        is_for_nobody = np.zeros(len(is_acknowledged), bool)
        for own, row in in_force:
            is_for_nobody[own] = not row.is_consuming
        return is_for_nobody & ~is_acknowledged

    def outcomes(
        self, pops: PopsByKey, in_force: PopsInForce, popped_at: Int64s, attempt: Int64s, tags: pa.ChunkedArray
    ) -> tuple[Int64s, Int64s, Mask]:
        """For each pop, the ``valid_from`` of the subscription in force, the number of its outcome, and its doubt.

        If it is not known by which subscription a message was handed out, ``valid_from`` is UNKNOWN_SUBSCRIPTION.
        """
        subscription_from = np.full(len(popped_at), UNKNOWN_SUBSCRIPTION, np.int64)
        is_dropped, is_dead, is_uncertain = np.zeros((3, len(popped_at)), bool)
        for own, row in in_force:
            check = self.check_tags(row, popped_at[own], tags, own)
            is_dropped[own], is_uncertain[own] = check.is_dropped, check.is_uncertain
            subscription_from[own] = np.where(check.is_in_force, row.valid_from, UNKNOWN_SUBSCRIPTION)
        for (group, _), own in pops:
            is_dead[own] = is_given_up(attempt[own] - 1, self._groups.most_attempts(group))
            is_uncertain[own] |= ~is_dropped[own] & self.may_be_given_up(group, attempt[own])
        delivered, dropped, dead = range(len(OUTCOMES))
        outcome = np.where(is_dropped, dropped, np.where(is_dead, dead, delivered))
        return subscription_from, outcome, is_uncertain

    def may_be_given_up(self, consumer_group: str, attempt: Int64s) -> Mask:
        """Which redeliveries are given up if the group's retryMaxTimes, which is not known, is small enough."""
        return (attempt > 1) & (not self._groups.knows_most_attempts(consumer_group))

    def check_tags(self, row: SubscriptionRow, popped_at: Int64s, tags: pa.ChunkedArray, own: Int64s) -> TagCheck:
        """What becomes of messages that were popped at some times (ms) while ``row`` was in force.

        Where clients had others then, or the group had at other times, the requests may have carried these. ``own``:
        the positions of the messages in ``tags``.
        """
        is_dropped, is_uncertain, is_in_force = np.zeros((3, len(own)), bool)
        is_in_force[:] = True
        for at, others in self._with_other_clients(row, popped_at):
            if row.tags_set or any(other.tags_set for other in others):
                check = check_tags(tags.take(pa.array(own[at])), row.compiled, others, self._at_other_times(row))
                is_dropped[at], is_uncertain[at], is_in_force[at] = (
                    check.is_dropped, check.is_uncertain, check.is_in_force
                )  # fmt: skip
        return TagCheck(is_dropped, is_uncertain, is_in_force)

    def pauses(self, key: GroupTopic, pops: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
        """The pauses between ``pops`` of a group that popped meanwhile, while its clients agreed (:func:`pauses`)."""
        last, first = pauses(*pops)
        since, until = pops[1][last], pops[1][first]
        is_within = are_within(self._recorded.get(key, ()), since, until)
        for state in self._differing.get(key, ()):  # each client passes over what only another one asks for
            is_within &= (until < state.valid_from) | (state.end <= since)
        return last[is_within], first[is_within]

    def may_be_for_nobody(self, pops: PopsByKey, popped_at: Int64s, is_kept: Mask, is_redelivered: Mask) -> Mask:
        """Which pops (ms) may be those of last requests of SimpleConsumers that left, or of clients that pull now.

        Nobody kept them: acknowledged or renewed them. A client that is told to pull drops what it popped; so a message
        that remoting clients popped, and that came again, may have been dropped when they were switched.
        """
        may_be = np.zeros(len(popped_at), bool)
        for key, positions in pops:
            group, subscribed = key[0], (key[0], subscribed_topic(*key))
            own = positions[~is_kept[positions]]
            ended = [until for _, until in self._recorded.get(subscribed, ()) if until < FOREVER]
            held_from = (*self._left.get(group, ()), *(until - HELD_PULL_MS for until in ended))
            held = [(begin, begin + HELD_PULL_MS) for begin in held_from]
            may_be[own] = is_redelivered[own] & (subscribed in self.mode_was_set)
            may_be[own] |= are_within(held, popped_at[own], popped_at[own])
        return may_be

    def _with_other_clients(
        self, row: SubscriptionRow, popped_at: Int64s
    ) -> Iterator[tuple[Int64s, Sequence[CompiledSubscription]]]:
        """The positions of some of the times, each with the other subscriptions that clients had then."""
        is_left = np.ones(len(popped_at), bool)
        for state in self._differing.get(row.key, ()):
            is_then = (state.valid_from <= popped_at) & (popped_at < state.end)
            if is_then.any():
                others = state.filters.keys() - {row.filter}
                compiled = [compile_client_filter(row.topic, each, self._expressions) for each in others]
                yield np.flatnonzero(is_then), compiled
                is_left &= ~is_then
        yield np.flatnonzero(is_left), ()

    def _at_other_times(self, row: SubscriptionRow) -> Sequence[CompiledSubscription]:
        """The other subscriptions that the group had on the topic before or after ``row``."""
        others = {other.filter: other.compiled for other in self._subscriptions[row.key] if other.filter != row.filter}
        return list(others.values())


def leaves_of_simple_consumers(events: Iterable[SubscriptionEvent]) -> dict[str, list[int]]:
    """By group, when SimpleConsumers left it (ms)."""
    simple: set[tuple[str, str | None]] = set()
    left: dict[str, list[int]] = {}
    for event in events:
        client = event.group, event.client_id
        if event.protocol == GRPC_SIMPLE:
            simple.add(client)
        elif event.operation is Operation.UNREGISTER and client in simple:
            left.setdefault(event.group, []).append(event.at)
    return left
