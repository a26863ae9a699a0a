"""What is uncertain of a group in a night: which filter some messages met, or whether the group got them.

Each cause makes an UncertainRange of messages, with a reason:

- A subscription changed while the broker may have held a pull (:func:`uncertain_at_change`), or while a request with
  the former one may have been on its way (:func:`uncertain_request`).
- A group left, came back, or was moved to another offset, and it is not known what it had received by then. A
  subscription was not seen for a time. Clients of a group disagree, so that it depends on the client that reads a
  message. GroupUncertainty has a method for each of these.

Which windows a group has does not depend on any of this: see :mod:`filtering.consumption.group`.
Sources: PullRequestHoldService, PullAPIWrapper, PopLongPollingService, DefaultMQPushConsumerImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from filtering.consumption.offsets import FIRST_SAVE, Offsets, QueueRestart, after_night
from filtering.delivery.message_filter import FiltersInForce, MessageFilter
from filtering.delivery.pull_window import (
    EVERYWHERE,
    NO_END,
    OffsetRange,
    PullWindow,
    Reason,
    UncertainRange,
    WindowKind,
)
from filtering.predicate import FALSE, TRUE, And, Or, Predicate
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import GRPC_SIMPLE, ConsumeMode, GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.history import state_at
from filtering.subscriptions.inconsistency import GroupClients, SeemingDisagreement
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, FOREVER

# How long clients and brokers take.


HELD_MESSAGES = 5_000
"""ms: how long messages that did not match may wait in a held pull. A changed subscription may then filter them."""
CLIENT_RESET = 20_000
"""ms: the clients of brokers before 5.2.0 stop at an offset reset, wait 10 s, and go on at their next rebalancing."""
COMMIT_INTERVAL = 5_000
"""ms: how often a client commits (persistConsumerOffsetInterval). One that dies does not commit when it leaves."""
MAX_SPAN = 2_000
"""A client pulls no more of a queue while its messages in work span so many (consumeConcurrentlyMaxSpan)."""
HELD_PULL_MS = 20_000
"""ms: how long the broker holds a pull in an empty queue: for 15 s, and until it looks for new messages again."""
NOT_PULLED = 1_000
"""ms: a message that was stored so long before a change may be pulled after it; 187 ms were seen under load."""
FIRST_PULL = 2_000
"""ms: until a client that has just registered has asked for the end of its queues; 0.8 s were seen."""
REQUEST_GAP = 2_000
"""ms: between two requests of a client that pops, while it consumes; 1 ms to 1.7 s were seen."""
SETTINGS = 300_000
"""ms: how often a gRPC client sends its settings, which register its subscriptions."""
ENTRY_DELAY = 100
"""ms: until a stored message has its consume queue entry, and a pop can read it; 13 ms were seen."""


# A subscription changed beside a held pull or a request, or an offset was reset.


def uncertain_at_change(
    before: SubscriptionRow, old: MessageFilter, new: MessageFilter, at: int
) -> Iterator[UncertainRange]:
    """The messages that may have met the other subscription when it changed at ``at`` (ms): those of a held pull, and
    those that were not pulled yet.

    ``old`` is the filter of the subscription ``before``, ``new`` that of the changed one.
    """
    was, matches = old.delivered, new.delivered
    if was == matches:
        return
    if before.sent_with_pull:
        asked = old.expression if old.tags is TRUE else old.tags
        yield UncertainRange(*before.key, was, matches, at, at + HELD_PULL_MS, asked, at)
    elif old.client_tags is not TRUE and old.client_tags != new.client_tags:
        # A message with an old tag makes the broker answer the pull, if it finds something by the new subscription.
        both, answered = And((matches, old.client_tags)), And((old.tags, new.tags, new.expression))
        yield UncertainRange(*before.key, both, matches, at, at + HELD_PULL_MS, answered, at)
    if not is_tag_type(before.expression_type) and not before.sent_with_pull:
        yield UncertainRange(*before.key, old.expression, matches, at - HELD_MESSAGES, at, changed_at=at)
    else:
        yield UncertainRange(*before.key, was, matches, at - NOT_PULLED, at, changed_at=at)


def protocol_before(events: Mapping[int, SubscriptionEvent], at: int) -> str | None:
    """How the clients of a group consumed before ``at`` (ms), as far as ``events`` by their times (ms) say it."""
    said = [event.protocol for time, event in events.items() if time < at]
    return next(filter(None, reversed(said)), None)


def uncertain_request(
    old: MessageFilter, new: MessageFilter, at: int, event: SubscriptionEvent | None
) -> UncertainRange | None:
    """Messages that a request with the ``old`` filter read, or one with the ``new`` filter: it is not known which.

    The subscription of a group that pops changed at ``at`` (ms) by ``event``. None if there are none. If it is known
    when a request carried the former one for the last time, that read what was in the queue then.
    """
    was, matches = old.delivered, new.delivered
    if was == matches:
        return None
    begin, end = at, at + HELD_PULL_MS
    if event is not None and event.operation is Operation.POP_SUBSCRIPTION:
        if event.other_until is not None:
            begin, end = event.other_until - ENTRY_DELAY, event.other_until + 1
        else:
            begin, end = at - REQUEST_GAP, at
    elif event is not None and event.protocol == GRPC_SIMPLE:
        begin, end = at - SETTINGS, at
    return UncertainRange(*old.key, was, matches, begin, end, changed_at=at, reason=Reason.NEXT_REQUEST)


def uncertain_reset(window: PullWindow, changed: MessageFilter | None) -> UncertainRange | None:
    """The messages of the ``window`` after a reset by clients of which it is not known whether they met its filter.

    ``changed``: the filter that replaced it within CLIENT_RESET; None if the group left. None if none may.
    """
    matches = window.message_filter.delivered
    after = FALSE if changed is None else changed.delivered
    return None if matches == after else UncertainRange.in_window(window, matches, after, Reason.RESET_BY_CLIENTS)


def deleted_tonight(skipped: PullWindow, log_start: int, reason: Reason) -> UncertainRange:
    """The messages of ``skipped`` that the broker still had at the end of the last night, when the log began at
    ``log_start``: it may have deleted them after the group had come and pulled them.
    """
    ranges = {queue_id: skipped.physical_ranges.get(queue_id, EVERYWHERE) for queue_id in skipped.offsets}
    there = {queue_id: (max(begin, log_start), end) for queue_id, (begin, end) in ranges.items()}
    window = replace(skipped, physical_ranges=there)
    return UncertainRange.in_window(window, FALSE, skipped.message_filter.delivered, reason)


# What a group's plan notes.


def outside(uncertain_ranges: Iterable[UncertainRange], begin: int, end: int) -> list[UncertainRange]:
    """The parts of ranges before and after [``begin``, ``end``) (ms), in which all is uncertain anyway."""
    parts = []
    for uncertain in uncertain_ranges:
        parts += [
            replace(uncertain, stored_from=since, stored_to=until)
            for since, until in (
                (uncertain.stored_from, min(uncertain.stored_to, begin)),
                (max(uncertain.stored_from, end), uncertain.stored_to),
            )
            if since < until
        ]
    return parts


@dataclass
class GroupUncertainty:
    """What is uncertain of one group on one topic in a night after ``as_of`` (ms). Its plan calls a method for each
    cause.

    ``around_events``: messages around a change of the subscription, a leave or an offset reset. Where one of
    ``unseen`` says more, it counts instead: all messages of a time in which it is not known what the group subscribed
    to. ``in_windows``: parts of windows that only some clients keep, or that the group may not have received.
    """

    key: GroupTopic
    filters: FiltersInForce
    as_of: int | None
    around_events: list[UncertainRange] = field(default_factory=list)
    unseen: list[UncertainRange] = field(default_factory=list)
    in_windows: list[UncertainRange] = field(default_factory=list)

    def not_watched(self, since: int, until: int, ends: Offsets, only_listed: bool = False) -> None:
        """What was stored in [``since``, ``until``) (ms) in the night was not watched, up to the offsets ``ends``.

        With ``only_listed``, only in the queues of ``ends``.
        """
        begin = after_night(self.as_of, since)
        if begin < until:
            offsets = {queue_id: (0, end) for queue_id, end in ends.items()}
            uncertain = UncertainRange(
                *self.key, FALSE, TRUE, begin, until, changed_at=until, offsets=offsets, only_listed=only_listed,
                reason=Reason.NOT_WATCHED,
            )  # fmt: skip
            self.unseen.append(uncertain)

    def pulled_unwatched(self, windows: Iterable[PullWindow], since: int, until: int) -> None:
        """What the group pulled of waiting messages in [``since``, ``until``] (ms) was not watched."""
        self.in_windows += [
            UncertainRange.in_window(window, FALSE, TRUE, Reason.NOT_WATCHED)
            for window in windows
            if window.kind is not WindowKind.ONLINE
            and window.available_at is not None
            and since <= window.available_at <= until
        ]

    def left_unwatched(self, row: SubscriptionRow, since: int, at: int) -> None:
        """The group was seen to have left at ``at`` (ms); it was not watched ``since``.

        The broker may have held a pull then. What that had not matched waits for the return.
        """
        delivered = self.filters.at(row, at - 1).delivered
        uncertain = UncertainRange(
            *self.key, delivered, TRUE, since - HELD_PULL_MS, since, changed_at=at, reason=Reason.LEFT_PULL
        )
        self.in_windows.append(uncertain)

    def in_flight(
        self, row: SubscriptionRow, at: int, committed: Offsets, physical_ranges: Mapping[int, OffsetRange]
    ) -> None:
        """The group left at ``at`` (ms), and may have received messages that it had not ``committed``: they come again.

        Without its offsets then, these are those since its last regular commit.
        """
        since = BEGINNING if committed else at - COMMIT_INTERVAL
        uncertain = UncertainRange(
            *self.key, FALSE, self.filters.at(row, at - 1).delivered, after_night(self.as_of, since), at, changed_at=at,
            offsets={queue_id: (offset, offset + MAX_SPAN) for queue_id, offset in committed.items()},
            only_listed=bool(committed), physical_ranges=physical_ranges, reason=Reason.IN_FLIGHT,
        )  # fmt: skip
        self.around_events.append(uncertain)

    def not_passed(self, before: SubscriptionRow, left_at: int, row: SubscriptionRow, at: int) -> None:
        """The group came back at ``at`` (ms), and nothing says where it stood when it left.

        A held pull may not have passed what did not match.
        """
        old, new = self.filters.at(before, left_at - 1), self.filters.at(row, at)
        if old.delivered == new.delivered:
            return
        both = And((old.delivered, new.delivered))
        uncertain = UncertainRange(
            *self.key, both, new.delivered, left_at - HELD_PULL_MS, left_at, changed_at=at, reason=Reason.LEFT_PULL
        )
        self.around_events.append(uncertain)

    def committed_away(self, passed: Mapping[int, OffsetRange], delivered: Predicate, at: int) -> None:
        """The offsets of the group moved over ``passed`` at ``at`` (ms), though it was seen to have left."""
        uncertain = UncertainRange(
            *self.key, FALSE, delivered, BEGINNING, FOREVER, changed_at=at, offsets=passed, only_listed=True,
            reason=Reason.COMMITTED_AWAY,
        )  # fmt: skip
        self.in_windows.append(uncertain)

    def last_request(self, row: SubscriptionRow, at: int) -> None:
        """A SimpleConsumer left at ``at`` (ms), and the proxy held its request."""
        matches = self.filters.at(row, at - 1).delivered
        begin, end = at - ENTRY_DELAY, at + HELD_PULL_MS
        self.around_events.append(
            UncertainRange(*self.key, FALSE, matches, begin, end, changed_at=row.valid_from, reason=Reason.LEFT)
        )

    def held_in_old_queue(self, restart: QueueRestart, row: SubscriptionRow) -> None:
        """A queue began again while the group pulled: the broker may have held a pull of the old one."""
        uncertain = UncertainRange(
            *self.key, FALSE, self.filters.at(row, restart.at).delivered, restart.at, restart.at + HELD_PULL_MS,
            changed_at=row.valid_from, offsets={restart.queue_id: (0, NO_END)}, only_listed=True,
            physical_ranges={restart.queue_id: (restart.commitlog_offset, NO_END)}, mode=row.mode,
            reason=Reason.HELD_IN_OLD_QUEUE,
        )  # fmt: skip
        self.around_events.append(uncertain)

    # Clients of the group that seem to disagree, or that do.

    def with_seeming(
        self, uncertain_ranges: Iterable[UncertainRange], seeming: Iterable[SeemingDisagreement]
    ) -> list[UncertainRange]:
        """The ranges, and the times in which clients seem to disagree: all is uncertain there.

        A subscription that changes in these times is a part of the disagreement, and makes nothing uncertain after it.
        The last night counted what it could see to be uncertain.
        """
        uncertain = list(uncertain_ranges)
        for disagreement in seeming:
            begin, end = disagreement.valid_from, disagreement.end
            parts = outside(uncertain, begin, end)
            uncertain = [part for part in parts if not begin <= part.changed_at < end <= part.stored_from]
            if self.as_of is not None and disagreement.seen_at <= self.as_of:
                begin = after_night(self.as_of, begin)
            asked = self._asked(disagreement.rows)
            uncertain += self._matched_by_some(asked, begin, end, disagreement.valid_from, Reason.CLIENTS_DISAGREE)
        return uncertain

    def handed_over(self, states: Sequence[GroupClients], rows: Sequence[SubscriptionRow]) -> Iterator[UncertainRange]:
        """The messages of the night that one client had not committed when another one with another subscription took
        over its queue: what the broker held a pull for, and what the client dropped. Only some of the filters match
        them that the clients have then, or had while a held pull may be from that time.

        ``states``: all of the group and topic. Before they differ, what is not committed is at most in a held pull.
        """
        moved = [state.valid_from for before, state in pairwise(states) if before.clients != state.clients]
        for is_differing, run in groupby(states, lambda state: bool(state.overruled)):
            differing = list(run) if is_differing else []
            times = [at for at in moved if differing and differing[0].valid_from <= at <= differing[-1].end]
            if not times:
                continue
            changed_at = differing[0].valid_from
            begin, end = after_night(self.as_of, changed_at - HELD_PULL_MS), times[-1] + FIRST_PULL
            around = [row for row in rows if row.valid_from < end + HELD_PULL_MS and row.end > begin - HELD_PULL_MS]
            yield from self._matched_by_some(self._asked(around), begin, end, changed_at, Reason.HANDED_OVER)

    def read_by_any(self, states: Iterable[GroupClients], rows: Sequence[SubscriptionRow]) -> Iterator[UncertainRange]:
        """The messages of the night that only some clients of a group match, whose requests filter for all of them.

        ``states``: those in which its clients subscribe differently.
        """
        for state in states:
            asked = self._asked(row for row in rows if row.filter in state.filters)
            begin = after_night(self.as_of, state.valid_from)
            yield from self._matched_by_some(asked, begin, state.end, state.valid_from, Reason.CLIENTS_DIFFER)

    def registered_only(
        self, registered: Iterable[SubscriptionRow], rows: Sequence[SubscriptionRow]
    ) -> Iterator[UncertainRange]:
        """The messages of the night that only one subscription matches: what is registered, or what requests carry.

        ``rows``: the states of a group that pops, as its requests carry them.
        """
        carried = {row.valid_from for row in rows}
        for row in registered:
            at = row.valid_from
            asked = state_at(rows, at)
            if at in carried or asked is None:
                continue
            as_popped = replace(row, topic=asked.topic, mode=ConsumeMode.POP)
            if self.filters.is_pulling(as_popped):
                both = [self.filters.at(subscription, at) for subscription in (asked, as_popped)]
                begin = after_night(self.as_of, at)
                yield from self._matched_by_some(both, begin, row.end, at, Reason.UNTIL_NEW_CLIENT)

    def not_registered_yet(
        self, rows: Sequence[SubscriptionRow], requests: Mapping[int, SubscriptionEvent], taken_at: int | None
    ) -> Iterator[UncertainRange]:
        """The messages of the night that requests of SimpleConsumers may have read with what they had not registered
        yet.

        ``requests``: the events that name the subscription. They say nothing of requests. ``taken_at``: when the night
        ended, ms.
        """
        if any(event.operation is Operation.POP_SUBSCRIPTION for event in requests.values()):
            return
        is_pulling = self.filters.is_pulling
        for row, after in zip(rows, [*rows[1:], None], strict=True):
            goes_on = after is not None and is_pulling(after)
            end = taken_at if row.valid_to is None else row.valid_to - ENTRY_DELAY  # then its last request counts
            if goes_on or end is None or not is_pulling(row) or protocol_before(requests, end) != GRPC_SIMPLE:
                continue
            begin = after_night(self.as_of, max(end - SETTINGS, row.valid_from))
            if begin < end:
                yield UncertainRange(
                    *row.key, FALSE, TRUE, begin, end, changed_at=row.valid_from, reason=Reason.NOT_REGISTERED_YET
                )

    def popped_again(self, rows: Sequence[SubscriptionRow], killed_at: int | None) -> Iterator[UncertainRange]:
        """What the group popped in the seconds before the broker was killed in the night: it may have popped it twice.

        ``killed_at``: when that was at the earliest (ms); None: it was not killed.
        """
        row = None if killed_at is None else state_at(rows, killed_at)
        if killed_at is None or row is None or not self.filters.is_pulling(row):
            return
        begin = after_night(self.as_of, killed_at - FIRST_SAVE)
        if begin <= killed_at:
            matches = self.filters.at(row, killed_at).delivered
            yield UncertainRange(
                *row.key, FALSE, matches, begin, killed_at + 1, changed_at=row.valid_from, reason=Reason.KILLED
            )

    def _asked(self, rows: Iterable[SubscriptionRow]) -> list[MessageFilter]:
        """The different filters of ``rows`` under which the group pulls."""
        by_filter = {row.filter: row for row in rows if self.filters.is_pulling(row)}
        return [self.filters.at(row, row.valid_from) for row in by_filter.values()]

    def _matched_by_some(
        self, filters: Sequence[MessageFilter], begin: int, end: int, changed_at: int, reason: Reason
    ) -> list[UncertainRange]:
        """The messages stored in [``begin``, ``end``) (ms) that only some of ``filters`` match.

        ``changed_at``: when the second of them replaced the first (ms).
        """
        if begin >= end or len(filters) < 2:
            return []
        matches = tuple(message_filter.delivered for message_filter in filters)
        some = UncertainRange(
            *filters[0].key, And(matches), Or(matches), begin, end, changed_at=changed_at, reason=reason
        )
        return [some]
