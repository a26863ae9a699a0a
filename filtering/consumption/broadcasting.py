"""The pull windows of groups whose clients broadcast: each client reads all queues, at offsets of its own.

A delivery to such a group is counted once, with the time when the first of its clients could pull the message:

1. While a client is online, it pulls a message when it is stored.
2. What is stored while none is online waits. A client that returns goes on where it was when it left, in a file on its
   own disk: it pulls all that was stored since then, for which no other client had come before.
3. A client that was never seen begins at the end of each queue (``consume_from`` last, even if the first message is
   still there), at its first message, or at a time.

The file is in no store: whether a client has it, or still has it, is not known. So what rules 2 and 3 deliver of the
messages that were stored before the client came is uncertain. The broker has no offset of these groups, and a message
on which a client failed is not sent back.

Source: LocalFileOffsetStore, RebalancePushImpl.computePullFromWhereWithException, ConsumeMessageConcurrentlyService.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from filtering.consumption.offsets import BrokerOffsets, GroupProgress, OffsetsSoFar
from filtering.delivery.message_filter import FiltersInForce
from filtering.delivery.pull_window import (
    NO_END,
    OffsetRange,
    PullWindow,
    Reason,
    StartReason,
    UncertainRange,
    WindowKind,
)
from filtering.frozen import frozen
from filtering.predicate import FALSE
from filtering.subscriptions.events import ConsumeFrom, ConsumeStart, GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.history import state_at
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, FOREVER


@frozen
class ClientStay:
    """A client subscribes to a topic in [``begin``, ``end``) (ms)."""

    client_id: str
    begin: int
    end: int
    consume_from: ConsumeStart


def broadcasting_clients(events: Iterable[SubscriptionEvent]) -> dict[GroupTopic, list[ClientStay]]:
    """The stays of all clients of the groups that broadcast, by group and topic, in the order of their begins.

    ``events`` are in order. What counts is the message model of a group's last client.
    """
    by_group: defaultdict[str, list[SubscriptionEvent]] = defaultdict(list)
    last: dict[str, bool] = {}
    for event in events:
        by_group[event.group].append(event)
        if event.subscriptions and event.client_id is not None:
            last[event.group] = event.is_broadcasting
    by_key: dict[GroupTopic, list[ClientStay]] = {}
    for group, is_broadcasting in last.items():
        for topic, stay in _stays(by_group[group]) if is_broadcasting else ():
            by_key.setdefault((group, topic), []).append(stay)
    return {key: sorted(stays, key=lambda stay: stay.begin) for key, stays in by_key.items()}


def _stays(events: Iterable[SubscriptionEvent]) -> Iterator[tuple[str, ClientStay]]:
    """The stays of the clients of one group, each with its topic."""
    present: dict[tuple[str, str], SubscriptionEvent] = {}

    def ended(client_id: str, topic: str, at: int) -> Iterator[tuple[str, ClientStay]]:
        since = present.pop((client_id, topic))
        if since.at < at:
            yield topic, ClientStay(client_id, since.at, at, since.consume_from)

    for event in events:
        topics = {subscription["topic"] for subscription in event.subscriptions}
        ends = event.operation is Operation.UNREGISTER
        for client_id, topic in list(present):
            is_about = event.client_id in (None, client_id) and event.topic in (None, topic)
            if is_about and (ends or (event.operation is Operation.HEARTBEAT and topic not in topics)):
                yield from ended(client_id, topic, event.at)
        if event.client_id is not None:
            for topic in topics:
                present.setdefault((event.client_id, topic), event)
    for client_id, topic in list(present):
        yield from ended(client_id, topic, FOREVER)


def clients_that_pulled(stays: Iterable[ClientStay], stored_at: int, at: int) -> list[str]:
    """The clients that pulled a message at ``at`` (ms): those online when it was stored, or those that came then."""
    if at == stored_at:
        return [stay.client_id for stay in stays if stay.begin <= at < stay.end]
    return [stay.client_id for stay in stays if stay.begin == at]


def clients_away(stays: Iterable[ClientStay], stored_at: int) -> list[str]:
    """The clients that left before a message was stored, and have not come since: they pull it if they return."""
    ends: dict[str, int] = {}
    for stay in stays:
        ends[stay.client_id] = stay.end
    return [client_id for client_id, end in ends.items() if end <= stored_at]


class BroadcastPlanner:
    """The plan of a night for a group that broadcasts on a topic.

    ``rows``: all states of its subscription; ``stays``: those of its clients, in order.
    """

    def __init__(
        self,
        key: GroupTopic,
        rows: Sequence[SubscriptionRow],
        stays: Sequence[ClientStay],
        filters: FiltersInForce,
        offsets_so_far: OffsetsSoFar,
        broker_offsets: BrokerOffsets,
    ) -> None:
        self.windows: list[PullWindow] = []
        self.uncertain_ranges: list[UncertainRange] = []
        self.group = GroupProgress(key)
        self._rows = rows
        self._filters = filters
        self._as_of = BEGINNING if offsets_so_far.as_of is None else offsets_so_far.as_of
        self._last_stored = self._as_of if offsets_so_far.last_stored is None else offsets_so_far.last_stored
        known = broker_offsets.min_offsets.get(key[1], {})
        self._offsets: Mapping[int, OffsetRange] = {
            queue_id: (offset, NO_END) for queue_id, offset in known.items() if offset > 0
        }
        pulling = [(row, row.valid_from, row.end) for row in rows if filters.is_pulling(row)]
        self._go_on(pulling)
        self._come(pulling, stays)
        if pulling:
            end = pulling[-1][2]
            self.group.is_consuming = end == FOREVER
            self.group.stopped_at = None if end == FOREVER else end

    def _go_on(self, pulling: Iterable[tuple[SubscriptionRow, int, int]]) -> None:
        """While a client is online, the group pulls what is stored."""
        for row, begin, end in pulling:
            if end > self._last_stored:
                for start, stop, in_force in self._filters.during(row, begin, end):
                    self.windows.append(PullWindow(in_force, row.valid_from, start, stop, reason=Reason.BROADCASTING))

    def _come(self, pulling: Sequence[tuple[SubscriptionRow, int, int]], stays: Iterable[ClientStay]) -> None:
        """Clients that come pull what waits for them, and was not decided before."""
        undecided = list(_gaps([(begin, end) for _, begin, end in pulling]))
        pulls: list[tuple[int, int, ClientStay]] = []
        for stay in stays:
            for _, begin, end in pulling:
                both = max(begin, stay.begin), min(end, stay.end)
                if both[0] < both[1]:
                    pulls.append((*both, stay))
        left: dict[str, int] = {}
        for at, end, stay in sorted(pulls, key=lambda pull: pull[:2]):
            since = left.get(stay.client_id, _first_stored(stay, at))
            waiting = [(max(begin, since), stop) for begin, stop in undecided if stop <= at and since < stop]
            for begin, stop in waiting:
                reason = Reason.RETURNED if stay.client_id in left else _start_reason(stay)
                self._pull(at, begin, stop, reason)
            undecided = [
                each for begin, stop in undecided for each in _before(begin, stop, since if stop <= at else stop)
            ]
            left[stay.client_id] = end

    def _pull(self, at: int, stored_from: int, stored_to: int, reason: Reason | StartReason) -> None:
        """A client pulls at ``at`` (ms) what was stored in an interval in which no client was online."""
        row = state_at(self._rows, at)
        assert row is not None
        if at <= self._last_stored:
            return
        # Of earlier nights' messages, the last night filtered those that waited.
        kind = WindowKind.ONLINE if at <= self._as_of else WindowKind.BACKLOG
        message_filter = self._filters.at(row, at)
        window = PullWindow(
            message_filter, row.valid_from, stored_from, stored_to, at, self._offsets, kind=kind, reason=reason
        )
        self.windows.append(window)
        uncertain = UncertainRange.in_window(window, FALSE, message_filter.delivered, Reason.OWN_OFFSETS)
        self.uncertain_ranges.append(uncertain)


def _first_stored(stay: ClientStay, at: int) -> int:
    """When the first message was stored that a client pulls which begins at ``at`` without offsets (ms)."""
    if stay.consume_from is ConsumeFrom.FIRST:
        return BEGINNING
    return at if isinstance(stay.consume_from, ConsumeFrom) else min(stay.consume_from, at)


def _start_reason(stay: ClientStay) -> StartReason:
    return StartReason.FIRST if stay.consume_from is ConsumeFrom.FIRST else StartReason.TIME_OF_BROADCASTING


def _gaps(intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The times before and between intervals, which are in order."""
    last = BEGINNING
    for begin, end in intervals:
        if last < begin:
            yield last, begin
        last = max(last, end)


def _before(begin: int, stop: int, since: int) -> Iterator[tuple[int, int]]:
    """The part of an interval before ``since``, if there is any."""
    if begin < min(stop, since):
        yield begin, min(stop, since)
