"""One group on one topic in a night: when it pulls, from which offset, and under which subscription.

The class at the end, GroupPlanner, takes the steps of the night in order and adds a pull window for each:

1. The *timeline* lists what happens to the group: it is online for the first time (BEGIN), begins to pull (START), goes
   on under another subscription (CHANGE), stops (STOP), has other offsets after that (COMMIT), an operator sets an
   offset (RESET), queues begin again (RESTART).
2. A group that does not pull (Away) has a *position*: the offsets at which it will go on, by queue id. A new group gets
   it from what the broker has for it, or else from ``consume_from`` (GroupStart). A group that was away goes on at its
   committed offset. START makes windows for what waits from there on; what the broker deleted meanwhile is lost. A
   RESET while it pulls makes such a window, too.
3. While it pulls (Pulling), each step ends a window of new messages and begins the next, with the subscription then in
   force (FiltersInForce).
4. The offsets that the group has committed when the night ends correct this (GroupCommits): if it did not keep up, its
   windows end at the committed offset, and the rest waits for the next night.
5. If clients of a group check different tags, each window is split by client (PlannedWindows). Queues that no client
   reads wait, too (UnreadQueues): the broker keeps the group's offset. When a client gets the queue, the messages are
   pulled from there, under the subscription then in force.
6. A subscription may change while the broker holds a pull. The broker answers it by the new subscription, with what
   waits in the queue. If the old one was a list of tags, the client then drops what has other tags. If the pull brought
   its own subscription, this one counts until the pull ends. Such messages are uncertain: where a step leaves some, the
   plan tells GroupUncertainty (:mod:`filtering.consumption.uncertainty`), which changes no window.

A group that pops is planned alike, if the broker does not write down what it pops. What differs is in its states
(SubscriptionRow.pops): each request brings the subscription, no bit map counts, and nothing refuses SQL92; it begins at
the last message that there is (:func:`first_pop`); a held request keeps its subscription, so a change counts from the
next request (:func:`uncertain_request`); and its retry topics are filtered by the same subscription.

The result: windows, what is lost or uncertain, and how far the group's deliveries are decided (GroupProgress).
Sources: RebalancePushImpl.computePullFromWhereWithException, RebalanceImpl, AllocateMessageQueueAveragely,
ConsumerManageProcessor, PullMessageProcessor, PopMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain, groupby
from typing import NamedTuple

from filtering.consumption.clients import ClientTags, by_client, by_time, kept_by_some, read_from, unread
from filtering.consumption.offsets import (
    COMMIT_DELAY,
    ORDER_SAVE_DELAY,
    SAVE_DELAY,
    BrokerOffsets,
    GroupProgress,
    Offsets,
    OffsetsSoFar,
    QueueRestart,
    after_night,
    physical_ranges_at,
)
from filtering.consumption.uncertainty import (
    CLIENT_RESET,
    FIRST_PULL,
    GroupUncertainty,
    deleted_tonight,
    protocol_before,
    uncertain_at_change,
    uncertain_request,
    uncertain_reset,
)
from filtering.delivery.message_filter import FiltersInForce
from filtering.delivery.pull_window import (
    EVERYWHERE,
    NO_BEGIN,
    NO_END,
    OffsetRange,
    PullWindow,
    Reason,
    StartReason,
    UncertainRange,
    WindowKind,
)
from filtering.frozen import frozen
from filtering.names import is_retry_topic
from filtering.predicate import FALSE, TRUE, Predicate
from filtering.subscriptions.events import (
    GRPC_SIMPLE,
    ConsumeFrom,
    ConsumeMode,
    ConsumeStart,
    GroupTopic,
    SubscriptionEvent,
)
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, FOREVER

# Positions.


@dataclass
class Position:
    """Where a group that does not pull will go on: at ``offsets``, by queue id.

    In other queues it goes on at their first entry, or with ``stored_from`` at what was stored since then (ms). An
    operator set the offsets of the queues in ``reset``.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    stored_from: int | None = None
    reset: set[int] = field(default_factory=set)

    def begin_again(self, restart: QueueRestart) -> None:
        """A queue begins again. Without an offset at the broker, the group begins at its first entry."""
        if restart.keeps_offsets:
            self.offsets.setdefault(restart.queue_id, restart.ended)
        else:
            self.offsets[restart.queue_id] = 0
            self.reset.discard(restart.queue_id)


def first_position(topic: str, at: int, consume_from: ConsumeStart, broker_offsets: BrokerOffsets) -> Position:
    """Where a group without offsets begins at ``at`` (ms).

    In its retry topic, it begins at the first entry, or with a time at the end.
    """
    if is_retry_topic(topic):
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


def first_pop(
    topic: str, at: int, consume_from: ConsumeStart, broker_offsets: BrokerOffsets, from_first_message: bool
) -> Position:
    """Where a group that pops begins without offsets at ``at`` (ms): in each queue at the last message that there is.

    With ``from_first_message`` at offset 0 while the queue has it. Source: PopMessageProcessor.getInitOffset.
    """
    known = broker_offsets.min_offsets.get(topic, {})
    if is_retry_topic(topic) or consume_from is ConsumeFrom.FIRST:
        return Position({queue_id: first for queue_id, first in known.items() if first > 0})
    if not known and not (broker_offsets.is_whole and from_first_message):
        return Position(stored_from=at)
    begins = {}
    for queue_id, first in known.items():
        if first > 0 or not from_first_message:
            begins[queue_id] = max(first, broker_offsets.first_since(topic, queue_id, at) - 1)
    return Position(begins)


def known_offsets(
    key: GroupTopic,
    at: int,
    offsets_so_far: OffsetsSoFar,
    resets: Iterable[SubscriptionEvent],
    restarts: Iterable[QueueRestart] = (),
) -> dict[int, int]:
    """By queue id, the offsets that the broker has at ``at`` (ms) for a group that was never online.

    It has those of the last snapshot, or those that an operator set; the later ones count. Where a queue began again
    since then with its topic, it has none. ``resets`` and ``restarts`` are in order.
    """
    night = offsets_so_far.as_of
    offsets = offsets_so_far.committed(key)
    is_removed = offsets_so_far.removed(key)
    in_snapshot = set(offsets)
    began = {restart.queue_id: restart.at for restart in restarts if restart.at < at and not restart.keeps_offsets}
    for queue_id in began:
        offsets.pop(queue_id, None)
    for reset in resets:
        queue_id, offset = reset.queue_id or 0, reset.queue_offset or 0
        is_later = night is None or reset.at > night
        began_at = began.get(queue_id, offsets_so_far.began_at.get((key[1], queue_id), BEGINNING))
        if not began_at < reset.at < at:
            continue
        if is_later or not (is_removed or queue_id in in_snapshot):
            offsets[queue_id] = offset
    return offsets


# The beginning: at its first start, or once the broker has no offset of it any more.


def start_reason(topic: str, consume_from: ConsumeStart, mode: ConsumeMode) -> StartReason:
    """Why a group without an offset begins where it begins in a queue of ``topic`` that lost its first message."""
    is_time = not isinstance(consume_from, ConsumeFrom) and mode is ConsumeMode.PULL
    if is_retry_topic(topic):
        return StartReason.RETRY_TOPIC_WITH_TIME if is_time else StartReason.RETRY_TOPIC
    if consume_from is ConsumeFrom.FIRST:
        return StartReason.FIRST
    if mode is ConsumeMode.POP:
        return StartReason.POP
    return StartReason.TIME if is_time else StartReason.LAST


@frozen(slots=True)
class GroupStart:
    """The group and topic ``key``, and what decides where it begins: offsets, and what its clients ask for.

    ``from_first_message``: it begins at offset 0 while a queue has it, as each group does that pulls. The rest is for
    the ``mode`` POP. ``commits_at_pop``: the broker keeps the offset after the last message that a pop read.
    ``is_in_order``: the group pops in order. Then the broker keeps the offset after the last acknowledged message, and
    ``handed_out`` has, by queue id, the offset after the last message that it popped.
    """

    key: GroupTopic
    consume_from: ConsumeStart
    offsets_so_far: OffsetsSoFar
    broker_offsets: BrokerOffsets
    mode: ConsumeMode = ConsumeMode.PULL
    from_first_message: bool = True
    commits_at_pop: bool = False
    handed_out: Offsets = field(default_factory=dict)
    is_in_order: bool = False

    def position(self, at: int, resets: Iterable[SubscriptionEvent]) -> Position:
        """Where it begins at ``at`` (ms), when it is online for the first time: at an offset that the broker has.

        Without one, where its clients ask for. ``resets``: its offset resets so far, in order.
        """
        begin = self._without_offsets(at)
        restarts = self.broker_offsets.restarts.get(self.key[1], ())
        begin.offsets.update(known_offsets(self.key, at, self.offsets_so_far, resets, restarts))
        return begin

    def reasons(self, queue_ids: Iterable[int], at: int, resets: Iterable[SubscriptionEvent]) -> dict[int, StartReason]:
        """Why :meth:`position` is where it is, by queue id."""
        topic = self.key[1]
        restarts = self.broker_offsets.restarts.get(topic, ())
        known = known_offsets(self.key, at, self.offsets_so_far, resets, restarts)
        committed = known_offsets(self.key, at, self.offsets_so_far, (), restarts) if known else {}
        queues = self.broker_offsets.min_offsets.get(topic, {})
        has_all_first = not any(queues.values()) and (bool(queues) or self.broker_offsets.is_whole)
        without_offset = start_reason(topic, self.consume_from, self.mode)
        by_queue: dict[int, StartReason] = {}
        for queue_id in queue_ids:
            if queue_id in known:
                is_committed = committed.get(queue_id) == known[queue_id]
                by_queue[queue_id] = StartReason.COMMITTED if is_committed else StartReason.RESET
            else:
                has_first_message = self.from_first_message and (has_all_first or queues.get(queue_id) == 0)
                by_queue[queue_id] = without_offset.with_first_message if has_first_message else without_offset
        return by_queue

    def position_anew(self, at: int, was_set: Position) -> Position:
        """Where it begins at ``at`` (ms) as at its first start; in queues of ``was_set`` where an operator set it."""
        begin = self._without_offsets(at)
        return replace(begin, offsets=begin.offsets | was_set.offsets, reset=was_set.reset)

    def shortened_tonight(self) -> list[int]:
        """The queues of which the broker deleted messages in the night: before that, it begins at other ones."""
        topic, so_far = self.key[1], self.offsets_so_far
        reason = start_reason(topic, self.consume_from, self.mode)
        needs_first_message = reason.with_first_message is not reason
        if self.broker_offsets.log_start <= (so_far.log_start or 0) or (
            needs_first_message and not self.from_first_message
        ):
            return []
        if self.broker_offsets.min_offsets:
            queues = self.broker_offsets.min_offsets.get(topic, {}).items()
            shortened = [queue_id for queue_id, first in queues if first > 0]
        else:  # no consume queue says where it begins
            shortened = [*so_far.topic_offsets(topic).queue_ids]
        if needs_first_message:
            return [queue_id for queue_id in shortened if so_far.may_have_first(topic, queue_id)]
        return shortened

    def offsets(self, queue_ids: Iterable[int]) -> dict[int, int]:
        """By queue id, the offset at which it would begin now without any; NO_END is the end of the queue."""
        begin = self._without_offsets(FOREVER)
        others = 0 if begin.stored_from is None else NO_END
        return dict.fromkeys(queue_ids, others) | begin.offsets

    def _without_offsets(self, at: int) -> Position:
        asked = self.key[1], at, self.consume_from, self.broker_offsets
        if self.mode is ConsumeMode.POP:
            return first_pop(*asked, self.from_first_message)
        return first_position(*asked)


# Committed offsets when the night ends.


@dataclass
class GroupCommits:
    """The offsets of the group and topic of ``start``, and where it went on at other ones.

    ``moves`` are those of the night's Timeline. ``lost_to``: by queue id, where the group went on because the broker
    had deleted what waited for it.
    """

    start: GroupStart
    moves: Sequence[tuple[int, int]]
    lost_to: dict[int, int] = field(default_factory=dict)

    @property
    def present(self) -> dict[int, int]:
        """By queue id, the offsets that the broker has."""
        return dict(self.start.broker_offsets.committed.get(self.start.key, {}))

    def present_at(self, stopped_at: int | None) -> dict[int, int]:
        """:attr:`present` of a group that stopped in the night (ms); empty if they may be older than its stop."""
        may_be_older = stopped_at is not None and self.start.broker_offsets.may_lack(stopped_at)
        return {} if may_be_older else self.present

    def uncommitted(self) -> dict[int, int]:
        """By queue id, where the group would begin in queues in which its clients have never committed an offset."""
        key, so_far = self.start.key, self.start.offsets_so_far
        without_offset = self.start.broker_offsets.uncommitted(key)
        if not without_offset:
            return {}
        decided = so_far.of(key)
        known = {queue_id for _, queue_id in self.moves} | so_far.committed(key).keys()
        queue_ids = [each for each in without_offset if each not in known]
        first = self.start.offsets(queue_ids)
        return {each: max(first[each], decided.get(each, 0)) for each in queue_ids if first[each] < NO_END}

    def uncommitted_at(self, stopped_at: int | None) -> dict[int, int]:
        """:meth:`uncommitted` of a group that stopped in the night (ms); empty if the offsets may be older."""
        offsets = self.start.broker_offsets
        saved_at = (offsets.committed_at or 0) - (SAVE_DELAY if offsets.is_estimated else 0)
        is_later = stopped_at is not None and saved_at >= stopped_at
        return self.uncommitted() if is_later else {}

    def limit(self, windows: PlannedWindows, until: int) -> dict[int, int]:
        """Ends the windows of queues in which the group was behind ``until`` (ms). Returns its offsets there.

        If the group moves to another offset of a queue later, the committed one says nothing about the time before.
        """
        behind = self._offsets_behind(windows, until, commits_at_once=self.start.commits_at_pop)
        moved_later = {queue_id for at, queue_id in self.moves if at >= until}
        limits = {queue_id: offset for queue_id, offset in behind.items() if queue_id not in moved_later}
        windows.limit(limits)
        return limits

    def is_behind(self, windows: PlannedWindows) -> bool:
        """Whether the group does not keep up when the night ends: messages wait for longer than a commit may take."""
        return bool(self._offsets_behind(windows, FOREVER, commits_at_once=False))

    def _offsets_behind(self, windows: PlannedWindows, until: int, commits_at_once: bool) -> dict[int, int]:
        """By queue id, the committed offsets of queues in which the group was behind ``until`` (ms)."""
        key, broker_offsets = self.start.key, self.start.broker_offsets
        saved_at = broker_offsets.committed_at
        if not self.present or saved_at is None:
            return {}
        if self.start.handed_out:
            before = min(until, max(saved_at, (broker_offsets.taken_at or 0) - ORDER_SAVE_DELAY))
        elif commits_at_once:
            before = min(until, max(saved_at, (broker_offsets.taken_at or 0) - SAVE_DELAY))
        else:
            before = min(until, saved_at) - COMMIT_DELAY
        decided = self.start.offsets_so_far.of(key) | self.lost_to
        offsets = self.with_handed_out(self.uncommitted() | self.present)
        return windows.offsets_behind(key[1], offsets, decided, broker_offsets, before)

    def with_handed_out(self, committed: Offsets) -> dict[int, int]:
        """By queue id, how far pops have read, of offsets that are ``committed``."""
        handed_out = self.start.handed_out
        return {queue_id: max(offset, handed_out.get(queue_id, 0)) for queue_id, offset in committed.items()}


# Queues that no client reads.


@frozen
class _UnreadWindow:
    """A window of one queue that no client reads until ``until`` (ms)."""

    queue_id: int
    window: PullWindow
    until: int


class UnreadQueues:
    """What waits in the queues of one group and topic that no client reads."""

    def __init__(self, clients: Sequence[ClientTags], filters: FiltersInForce) -> None:
        self._clients = clients
        self._filters = filters
        self._pulls: list[tuple[int, int, SubscriptionRow]] = []
        self._waiting: list[_UnreadWindow] = []

    def note_pulls(self, row: SubscriptionRow, begin: int, end: int) -> None:
        """The group pulls under a subscription in [``begin``, ``end``) (ms). Call it in the order of time."""
        self._pulls.append((begin, end, row))

    def add(self, window: PullWindow, clients: ClientTags) -> None:
        """Keeps what no client reads of a window."""
        for queue_id, part in unread(window, clients):
            self._waiting.append(_UnreadWindow(queue_id, part, clients.valid_to))

    def keep(self, window: PullWindow, at: int) -> PullWindow:
        """Keeps what no client reads at ``at`` (ms) of a window of listed queues, and returns the rest."""
        rest = dict(window.offsets)
        for queue_id, offsets in window.offsets.items():
            until = read_from(queue_id, at, self._clients)
            if until > at:
                del rest[queue_id]
                self._waiting.append(_UnreadWindow(queue_id, replace(window, offsets={queue_id: offsets}), until))
        return replace(window, offsets=rest)

    def begins(self, broker_offsets: BrokerOffsets) -> dict[int, int]:
        """By queue id, the offset from which messages wait."""
        offsets: dict[int, int] = {}
        for queue in self._waiting:
            begin, _ = queue.window.offsets[queue.queue_id]
            if queue.window.stored_from > BEGINNING:
                topic, since = queue.window.topic, queue.window.stored_from
                begin = max(begin, broker_offsets.first_since(topic, queue.queue_id, since))
            offsets[queue.queue_id] = min(begin, offsets.get(queue.queue_id, begin))
        return offsets

    def forget(self, queue_id: int) -> None:
        """The group's offset in a queue was set: what waits there is not pulled."""
        self._waiting = [queue for queue in self._waiting if queue.queue_id != queue_id]

    def take_read(self) -> Iterator[PullWindow]:
        """Removes and returns what was pulled after all, by the pulls so far."""
        waiting, self._waiting = self._waiting, []
        for queue in waiting:
            window = self._read(queue)
            if window is None:
                self._waiting.append(queue)
            else:
                yield window

    def _read(self, waiting: _UnreadWindow) -> PullWindow | None:
        for begin, end, row in self._pulls:
            at = read_from(waiting.queue_id, max(begin, waiting.until), self._clients)
            if at < end:
                return replace(
                    waiting.window,
                    message_filter=self._filters.at(row, at),
                    subscription_from=row.valid_from,
                    available_at=at,
                    reason=Reason.NOT_READ,
                )
        return None


# Windows for each client.


class PlannedWindows:
    """The windows of the night, and what waits ``unread`` because no client reads it.

    The group pulls since ``at`` (ms) without a break or a reset. ``moved``: the queues that it pulls from another
    offset than before: an operator set it, or they began again. ``queues_behind``: those in which it was behind when
    the night began, and that it did not begin anew. ``ends``: by queue id, the offset at which new messages begin.
    """

    def __init__(
        self,
        clients: Sequence[ClientTags],
        filters: FiltersInForce,
        ends: Mapping[int, int],
        uncertain: GroupUncertainty,
    ) -> None:
        self.windows: list[PullWindow] = []
        self.at = 0
        self.moved: set[int] = set()
        self.queues_behind: set[int] = set()
        self.unread = UnreadQueues(clients, filters)
        self._begins: dict[int, int] = {}
        """By queue id, the number of windows before its last move."""
        self._ends = ends
        self._uncertain = uncertain
        self._clients = clients

    def add(self, window: PullWindow) -> None:
        """Adds a window, split by client."""
        for during, clients in by_time(window, self._clients):
            if clients is None:
                self.windows.append(during)
            else:
                self.windows += by_client(during, clients)
                if clients.possible:
                    begins = self._ends if window.kind is WindowKind.ONLINE else {}
                    self._uncertain.in_windows.append(kept_by_some(during, clients, begins))
                self.unread.add(during, clients)

    def read_later(self) -> None:
        """Adds what was pulled after all, because a client read its queue again."""
        for window in self.unread.take_read():
            self.add(window)

    def start(self, at: int) -> None:
        """The group begins to pull at ``at`` (ms)."""
        self.read_later()
        self.at = at
        self.queues_behind = set()

    def leave(self, queue_id: int) -> None:
        """The group goes on at another offset of a queue: what waits there is not pulled."""
        self.read_later()
        self.unread.forget(queue_id)

    def move(self, queue_id: int) -> None:
        """The group goes on at another offset of a queue. A committed offset says nothing about what was before."""
        self.moved.add(queue_id)
        self.queues_behind.discard(queue_id)
        self._begins[queue_id] = len(self.windows)

    def limit(self, offsets: Offsets) -> None:
        """Ends the night's windows of each queue, since its last move, at these offsets.

        A client commits when it leaves. So what lies beyond a committed offset was not pulled in earlier times either.
        """
        if not offsets:
            return
        for number, window in enumerate(self.windows):
            self.windows[number] = window.up_to(
                {queue_id: end for queue_id, end in offsets.items() if number >= self._begins.get(queue_id, 0)}
            )

    def offsets_behind(
        self, topic: str, committed: Offsets, decided: Offsets, broker_offsets: BrokerOffsets, before: int
    ) -> dict[int, int]:
        """By queue id, the offsets that a group has ``committed`` where messages stored ``before`` (ms) wait.

        They are no less than the offsets that were ``decided`` before.
        """
        offsets: dict[int, int] = {}
        for queue_id, offset in committed.items():
            stored_at = broker_offsets.stored_at(topic, queue_id, offset)
            since = 0 if queue_id in self.queues_behind else self.at
            if stored_at is not None and max(stored_at, since) < before:
                offsets[queue_id] = offset if queue_id in self.moved else max(offset, decided.get(queue_id, 0))
        return offsets


# The timeline.


class Moment(Enum):
    """What happens to a group on a topic."""

    BEGIN = "begin"
    """The group is online for the first time."""
    START = "start"
    """The group begins to pull: for the first time, or again."""
    CHANGE = "change"
    """The group continues to pull under another subscription."""
    STOP = "stop"
    """The group leaves, or the broker refuses its pulls."""
    RESET = "reset"
    """An operator sets the group's offset in one queue."""
    COMMIT = "commit"
    """After the group left, its offsets were seen to move."""
    RESTART = "restart"
    """Queues of the topic begin again."""


@frozen(slots=True)
class TimelineStep:
    """A moment of a timeline, at ``at`` (ms).

    ``row`` is the subscription in force from then on, ``before`` the one until then (None: the first). ``reset`` is
    the event of a RESET, ``restarts`` are those of a RESTART.
    """

    at: int
    moment: Moment
    row: SubscriptionRow
    before: SubscriptionRow | None = None
    reset: SubscriptionEvent | None = None
    restarts: Sequence[QueueRestart] = ()

    @property
    def pulled(self) -> SubscriptionRow:
        """The subscription under which the group pulled until a CHANGE or a STOP."""
        assert self.before is not None
        return self.before


class _OffsetEvent(NamedTuple):
    """An offset reset, a commit, or the restarts of queues, at a time (ms)."""

    at: int
    moment: Moment
    reset: SubscriptionEvent | None = None
    restarts: Sequence[QueueRestart] = ()

    def concerns(self, is_pulling: bool) -> bool:
        """Whether it concerns a group that pulls, or does not. While a group pulls, it commits all the time."""
        return not (is_pulling and self.moment is Moment.COMMIT)

    def step(self, row: SubscriptionRow) -> TimelineStep:
        return TimelineStep(self.at, self.moment, row, row, self.reset, self.restarts)


@frozen(slots=True)
class GroupEvents:
    """What happens to a group on a topic beside changes of its subscription.

    ``resets``: all offset resets in order, earlier ones too. ``restarts``: those of queues of the topic in the night,
    in order. ``commits``: by the time of a STOP, a START or a COMMIT (ms), the offsets that the group had then, where
    they are known. ``mode_changed_at``: those of these times at which the group only began or ceased to pop.
    ``unseen``: by the time of a step (ms), since when it is not known what the group subscribed to. ``requests``: by
    their time (ms), the events that name the subscription of a group that pops.
    """

    resets: Sequence[SubscriptionEvent] = ()
    restarts: Sequence[QueueRestart] = ()
    commits: Mapping[int, Offsets] = field(default_factory=dict)
    mode_changed_at: Container[int] = ()
    unseen: Mapping[int, int] = field(default_factory=dict)
    requests: Mapping[int, SubscriptionEvent] = field(default_factory=dict)


@frozen(slots=True)
class Timeline:
    """``first`` is the subscription in force when the night begins, or None; ``steps`` are in order of time.

    ``pulls_at_first``: whether the group pulls when the night begins. ``events``: those of the steps, and earlier ones.
    ``earlier``: the states before the night, of which ``first`` is the last.
    """

    first: SubscriptionRow | None
    pulls_at_first: bool
    steps: Sequence[TimelineStep]
    events: GroupEvents
    earlier: Sequence[SubscriptionRow] = ()

    @property
    def moves(self) -> list[tuple[int, int]]:
        """When queues began again, or an operator set the group's offset: times (ms) and queue ids."""
        restarted = [(step.at, restart.queue_id) for step in self.steps for restart in step.restarts]
        return restarted + [(step.at, step.reset.queue_id or 0) for step in self.steps if step.reset is not None]


def timeline(
    rows: Sequence[SubscriptionRow],
    events: GroupEvents,
    as_of: int | None,
    is_pulling: Callable[[SubscriptionRow], bool],
) -> Timeline:
    """The steps after ``as_of`` (ms; None: all of them).

    ``rows`` are all states of one group and topic, in order. ``is_pulling`` tells whether the group pulls under a
    subscription.
    """
    begins = [row for row in rows if as_of is not None and row.valid_from <= as_of]
    first = begins[-1] if begins else None
    earliest = after_night(as_of, BEGINNING)
    changed_at = {row.valid_from for row in rows}
    offset_events = [_OffsetEvent(reset.at, Moment.RESET, reset) for reset in events.resets if reset.at >= earliest]
    commits = [at for at in events.commits if at >= earliest and at not in changed_at]
    offset_events += [_OffsetEvent(at, Moment.COMMIT) for at in commits]
    offset_events += [
        _OffsetEvent(at, Moment.RESTART, restarts=tuple(at_once))
        for at, at_once in groupby(events.restarts, lambda each: each.at)
    ]
    offset_events.sort(key=lambda each: each.at)
    is_known = any(row.is_consuming for row in begins)
    steps = _steps(first, is_known, rows[len(begins) :], offset_events, is_pulling)
    pulls = first is not None and is_pulling(first)
    return Timeline(first, pulls, list(_at_requests(steps, events.requests, earliest)), events, begins)


def _at_requests(
    steps: Iterable[TimelineStep], requests: Mapping[int, SubscriptionEvent], earliest: int
) -> Iterator[TimelineStep]:
    """The steps, with each change after the last request that carried the former subscription.

    What was stored since then meets the next request.
    """
    for step in steps:
        if step.moment is Moment.CHANGE and step.row.pops:
            event = requests.get(step.row.valid_from)
            if event is not None and event.other_until is not None:
                step = replace(step, at=max(event.other_until + 1, earliest))
        earliest = step.at
        yield step


def _steps(
    first: SubscriptionRow | None,
    is_known: bool,
    rows: Iterable[SubscriptionRow],
    offset_events: list[_OffsetEvent],
    is_pulling: Callable[[SubscriptionRow], bool],
) -> Iterator[TimelineStep]:
    """``is_known``: whether the group was online before. ``offset_events``: those of the night, in order."""
    current = first
    for row in rows:
        while offset_events and offset_events[0].at < row.valid_from:
            event = offset_events.pop(0)
            if current is not None and event.concerns(is_pulling(current)):
                yield event.step(current)
        if row.is_consuming and not is_known:
            is_known = True
            yield TimelineStep(row.valid_from, Moment.BEGIN, row, current)
        pulled = current is not None and is_pulling(current)
        if is_pulling(row):
            yield TimelineStep(row.valid_from, Moment.CHANGE if pulled else Moment.START, row, current)
        elif pulled:
            yield TimelineStep(row.valid_from, Moment.STOP, row, current)
        current = row
    for event in offset_events:
        if current is not None and event.concerns(is_pulling(current)):
            yield event.step(current)


# The plan.


_AT_KNOWN_OFFSETS = (Reason.RESET, StartReason.RESET, StartReason.COMMITTED)
"""Reasons to begin in a queue which do not depend on its first message."""
_OTHER_QUEUES = -1
"""Instead of a queue id: all queues that are not listed."""


def online_and_backlog(windows: Sequence[PullWindow]) -> tuple[list[PullWindow], list[PullWindow]]:
    """The windows of new messages only, and those also of messages of earlier nights."""
    return (
        [window for window in windows if window.kind is WindowKind.ONLINE],
        [window for window in windows if window.kind is not WindowKind.ONLINE],
    )


@frozen(slots=True)
class Pulling:
    """The group pulls. ``reason``: why its windows of new messages begin."""

    reason: Reason


@frozen(slots=True)
class Away:
    """The group does not pull, and will go on at ``position``, which moves meanwhile.

    ``reason``: RETURNED, or FIRST_START if it never pulled, or OFFSETS_REMOVED if the broker has no offset of it any
    more. ``left``: the STOP in the night since which it has not come back.
    """

    position: Position
    reason: Reason = Reason.RETURNED
    left: TimelineStep | None = None


class GroupPlanner:
    """Computes the pull windows of one group on one topic in a night. ``line``: what happens to it in the night.

    Each step takes the group from one state to the next, Pulling or Away, and adds windows and what is uncertain.
    """

    def __init__(
        self, group_start: GroupStart, line: Timeline, filters: FiltersInForce, clients: Sequence[ClientTags]
    ) -> None:
        self.group = GroupProgress(group_start.key)
        self.uncertain = GroupUncertainty(group_start.key, filters, group_start.offsets_so_far.as_of)
        self.lost: list[PullWindow] = []
        self._group_start = group_start
        self._offsets_so_far = group_start.offsets_so_far
        self._broker_offsets = group_start.broker_offsets
        self._line = line
        self._events = line.events
        self._filters = filters
        self._clients = clients
        new_from = group_start.offsets_so_far.topic_offsets(self.group.key[1]).ends_by_queue
        self._windows = PlannedWindows(clients, filters, new_from, self.uncertain)
        self._late: list[PullWindow] = []
        """Of messages that the last night could not read."""
        self._committed = GroupCommits(group_start, line.moves)

    @property
    def windows(self) -> list[PullWindow]:
        """All windows, in the order in which they were planned."""
        return [*self._late, *self._windows.windows]

    def run(self, gap: Timeline | None = None) -> None:
        """Plans the night.

        ``gap``: the end of the last night, whose messages it could not read, because the copy of the log was older than
        the rest of the snapshot; None if nothing happened to the group then.
        """
        line = self._line
        if line.first is None and not line.steps:
            return
        state = self._resume(gap)
        for i, step in enumerate(line.steps):
            later = line.steps[i + 1 :]
            state = self._after(state, step, later)
            if isinstance(state, Pulling):
                self._go_on(step.row, step.at, later, state.reason)
        self._windows.read_later()
        self.group.is_consuming = isinstance(state, Pulling)
        if isinstance(state, Pulling):
            self._keep_up()
        else:
            self._wait(state)
        self.group.decided_to = self._windows.unread.begins(self._broker_offsets) | self.group.decided_to

    def _resume(self, gap: Timeline | None) -> Pulling | Away:
        """The group goes on as it was when the last night ended."""
        line = self._line
        last_night = None if gap is None else self._plan_gap(gap)
        if line.pulls_at_first:
            assert line.first is not None
            as_of = self._offsets_so_far.as_of or 0
            self._windows.at = as_of
            self._catch_up(line.first)
            self._go_on(line.first, BEGINNING if gap is None else as_of + 1, line.steps, Reason.WAS_ONLINE)
            return Pulling(Reason.WAS_ONLINE)
        if self._offsets_so_far.removed(self.group.key):
            return Away(Position(), Reason.OFFSETS_REMOVED)
        if last_night is not None and last_night.stopped_at is not None:
            not_pulled = self._offsets_so_far.not_pulled(self.group.key)
            decided_to = {queue_id: decided_to for queue_id, (decided_to, _) in not_pulled.items()}
            return Away(Position(decided_to | last_night.decided_to, last_night.stopped_at))
        return Away(Position(self._offsets_so_far.waiting(self.group.key)))

    def _after(self, state: Pulling | Away, step: TimelineStep, later: Sequence[TimelineStep]) -> Pulling | Away:
        """The state of the group after a step. ``later``: the steps after it."""
        match step.moment, state:
            case Moment.BEGIN, Away():
                return Away(self._group_start.position(step.at, self._events.resets), Reason.FIRST_START)
            case Moment.START, Away():
                return self._start(state, step)
            case Moment.CHANGE, Pulling():
                return self._change(step)
            case Moment.STOP, Pulling():
                return self._stop(step)
            case Moment.RESET, Pulling():
                return self._reset_while_pulling(state, step, later)
            case Moment.RESET, Away():
                self._reset_while_away(state.position, step)
            case Moment.COMMIT, Away():
                self._commit(state, step.at, self._events.commits[step.at])
            case Moment.RESTART, _:
                return self._restart(state, step)
        return state

    def _start(self, away: Away, step: TimelineStep) -> Pulling:
        """The group begins to pull, or pulls again."""
        position, reason = away.position, away.reason
        position.offsets.update(self._events.commits.get(step.at, {}))
        if away.left is not None and self._is_in_flight(away.left):
            self._note_in_flight(away.left, {})
        left = away.left or self._left_at_unknown_offsets(away, step)
        if left is not None and self._is_in_flight(left):
            self.uncertain.not_passed(left.pulled, left.at, step.row, step.at)
        if reason is Reason.OFFSETS_REMOVED:
            position = self._group_start.position_anew(step.at, position)
        elif reason is Reason.RETURNED and step.before is not None and step.before.is_consuming:
            reason = Reason.ANSWERED  # the broker refused its pulls
        # In order, what was not acknowledged comes again.
        comes_again = reason is Reason.RETURNED and self._group_start.is_in_order
        goes_back = reason is Reason.OFFSETS_REMOVED or comes_again
        self._note_never_watched(step, position)
        self._pull_waiting(step, position, reason, WindowKind.RESET if goes_back else WindowKind.BACKLOG)
        self._note_unseen(step, {})
        return Pulling(reason)

    def _change(self, step: TimelineStep) -> Pulling:
        """The group goes on under another subscription."""
        self._note_change(step.pulled, step.row, step.at)
        self._note_unseen(step, {})
        return Pulling(Reason.CHANGED)

    def _stop(self, step: TimelineStep) -> Away:
        """The group leaves, or the broker refuses its pulls from now on."""
        is_gone = step.at not in self._events.requests  # or else its next request is the first with a new state
        if step.pulled.pops and is_gone and protocol_before(self._events.requests, step.at) == GRPC_SIMPLE:
            self.uncertain.last_request(step.pulled, step.at)
        position = Position(self._offsets_at_stop(step.at), stored_from=step.at)
        self._note_unseen(step, self._events.commits.get(step.at, {}))
        if not self._may_commit_later(step) and step.at in self._events.unseen:
            self.uncertain.left_unwatched(step.pulled, self._events.unseen[step.at], step.at)
        return Away(position, left=step)

    def _may_commit_later(self, left: TimelineStep) -> bool:
        """Whether the offsets that the group had when it left are known, so that later ones are others."""
        return left.at in self._events.commits and left.at not in self._events.mode_changed_at

    def _is_in_flight(self, left: TimelineStep) -> bool:
        """Whether the group may have received what it had not committed when it left: only a snapshot may say it."""
        is_known = left.at in self._events.commits or left.at in self._events.unseen
        return not (is_known or left.pulled.pops or left.row.is_consuming)

    def _offsets_at_stop(self, at: int) -> dict[int, int]:
        """By queue id, where the group that stops at ``at`` (ms) had come, if it had not come to what was stored then.

        Offsets that were seen when it left are exact. Those of the snapshot at the end of the night may be later. What
        earlier nights decided stays.
        """
        if at not in self._events.commits:
            return self._committed.limit(self._windows, at)
        decided, moved = self._offsets_so_far.of(self.group.key), self._windows.moved
        offsets = {
            queue_id: offset if queue_id in moved else max(offset, decided.get(queue_id, 0))
            for queue_id, offset in self._events.commits[at].items()
        }
        self._windows.limit(offsets)
        return offsets

    def _commit(self, away: Away, at: int, offsets: Offsets) -> None:
        """The group has other offsets at ``at`` (ms), though it was seen to have left.

        A client that drops a topic commits once more, some seconds later: the group pulled what is before these
        offsets. Later, only an operator moves them. It is not known which of the two it was.
        """
        left, position = away.left, away.position
        moved = {each: offset for each, offset in offsets.items() if position.offsets.get(each, offset) != offset}
        passed = {each: (position.offsets[each], end) for each, end in moved.items() if position.offsets[each] < end}
        position.offsets.update(offsets)
        delivered: Predicate = TRUE
        if left is not None and self._may_commit_later(left) and at <= left.at + COMMIT_DELAY:
            window = PullWindow(
                self._filters.at(left.pulled, left.at - 1), left.pulled.valid_from, available_at=left.at,
                offsets=passed, only_listed=True,
                physical_ranges=self._physical_ranges(left.at, self._broker_offsets.log_start),
                kind=WindowKind.BACKLOG, reason=Reason.COMMITTED_AWAY, mode=left.pulled.mode,
            )  # fmt: skip
            if passed:
                self._windows.add(window)
            delivered = window.message_filter.delivered
            position.reset |= moved.keys() - passed.keys()
        else:
            position.reset |= moved.keys()
        if passed:
            self.uncertain.committed_away(passed, delivered, at)

    def _note_unseen(self, step: TimelineStep, ends: Offsets) -> None:
        """All that the group pulled since its subscription was not known is uncertain, up to the offsets ``ends``."""
        since = self._events.unseen.get(step.at)
        if since is not None:
            self.uncertain.pulled_unwatched(self._windows.windows, since, step.at)
            if step.moment is not Moment.START:
                self.uncertain.not_watched(since, step.at, ends)

    def _note_never_watched(self, step: TimelineStep, begin: Position) -> None:
        """Before anybody watched a group (since 0), it may have pulled what is before the ``begin`` of its start."""
        if self._events.unseen.get(step.at) == 0:
            until, is_listed = (step.at, True) if begin.stored_from is None else (begin.stored_from, False)
            self.uncertain.not_watched(0, until, begin.offsets, only_listed=is_listed)

    def _left_at_unknown_offsets(self, away: Away, start: TimelineStep) -> TimelineStep | None:
        """When a group left that returns in a later night, if no snapshot since then had its offsets; mostly None."""
        if away.reason is not Reason.RETURNED or start.at in self._events.commits:
            return None
        committed, position = self._offsets_so_far.committed(self.group.key), away.position
        are_known = committed and all(
            committed.get(queue_id) == offset or queue_id in position.reset
            for queue_id, offset in position.offsets.items()
        )
        first, is_pulling = self._line.first, self._filters.is_pulling
        if are_known or (first is not None and is_pulling(first)):
            return None
        before = [*_steps(None, False, self._line.earlier, [], is_pulling)]
        return next((step for step in reversed(before) if step.moment is Moment.STOP), None)

    def _note_in_flight(self, left: TimelineStep, committed: Offsets) -> None:
        """What the group had not ``committed`` when it left comes again."""
        self.uncertain.in_flight(left.pulled, left.at, committed, self._physical_ranges(left.at, log_start=0))

    def _note_change(self, before: SubscriptionRow, after: SubscriptionRow, at: int) -> None:
        """The subscription changed at ``at`` (ms) while the group pulled."""
        old, new = self._filters.at(before, at - 1), self._filters.at(after, at)
        uncertain_ranges: list[UncertainRange] = []
        if after.pops:
            uncertain = uncertain_request(old, new, after.valid_from, self._events.requests.get(after.valid_from))
            if uncertain is not None and self._group_start.is_in_order:
                uncertain = replace(uncertain, stored_from=self._windows.at, stored_to=at, reason=Reason.IN_ORDER)
                if not_pulled := self._offsets_so_far.not_pulled(self.group.key):
                    waiting = replace(uncertain, stored_from=BEGINNING, offsets=not_pulled, only_listed=True)
                    self.uncertain.around_events.append(waiting)
            uncertain_ranges += [uncertain] if uncertain is not None else []
        else:
            uncertain_ranges += uncertain_at_change(before, old, new, at)
        is_all_unseen = self._windows.at >= self._events.unseen.get(at, FOREVER)
        self.uncertain.around_events += [
            each for each in uncertain_ranges if not (is_all_unseen and each.stored_to <= at)
        ]

    def _plan_gap(self, gap: Timeline) -> GroupProgress:
        """Plans new messages from before the last night's end as that night would have. Returns the progress."""
        committed = {self.group.key: self._offsets_so_far.committed(self.group.key)}
        broker_offsets = replace(self._broker_offsets, committed=committed, committed_at=None)
        so_far = OffsetsSoFar(self._offsets_so_far.last_stored)
        group_start = replace(self._group_start, offsets_so_far=so_far, broker_offsets=broker_offsets)
        planner = GroupPlanner(group_start, gap, self._filters, self._clients)
        planner.run()
        end = (self._offsets_so_far.as_of or 0) + 1
        # Of earlier nights' messages, the last night filtered those of its backlog.
        for window in chain(*online_and_backlog(planner.windows)):
            self._late.append(replace(window, stored_to=min(window.stored_to, end), kind=WindowKind.ONLINE))
        return planner.group

    def _go_on(self, row: SubscriptionRow, begin: int, later: Sequence[TimelineStep], reason: Reason) -> None:
        """The group pulls messages stored from ``begin`` (ms) until its next step."""
        end = later[0].at if later else FOREVER
        self._windows.unread.note_pulls(row, begin, end)
        for start, stop, in_force in self._filters.during(row, begin, end):
            window = PullWindow(in_force, row.valid_from, start, stop, reason=reason, mode=row.mode)
            self._windows.add(window)

    def _pull_waiting(self, step: TimelineStep, position: Position, reason: Reason, kind: WindowKind) -> None:
        """The group pulls what waits for it from a position on. What the broker deleted is lost to it."""
        self._windows.start(step.at)
        ranges: dict[int, OffsetRange] = {}
        deleted: dict[int, OffsetRange] = {}
        for queue_id, offset in position.offsets.items():
            first = max(offset, self._broker_offsets.min_offset(self.group.key[1], queue_id))
            ranges[queue_id] = first, NO_END
            if queue_id in position.reset:
                self._windows.move(queue_id)
            elif first > offset:
                self.group.lost[queue_id] = self.group.lost.get(queue_id, 0) + first - offset
                self._committed.lost_to[queue_id] = first
                deleted[queue_id] = offset, first
        window = self._waiting(step, ranges, kind, reason, only_listed=position.stored_from is not None)
        reasons = self._start_reasons(position, reason, step.at)
        self._note_deleted_at_start(window, deleted, reasons)
        rest = self._add_by_reason(window, reasons)
        if position.stored_from is not None:
            others = dict.fromkeys(ranges, (0, 0))
            rest = replace(rest, stored_from=position.stored_from, offsets=others, only_listed=False)
            self._windows.add(rest)
            if reason is Reason.FIRST_START and position.stored_from == step.at and not step.row.pops:
                at_end = UncertainRange.in_window(rest, FALSE, rest.message_filter.delivered, Reason.BEGAN_AT_END)
                self.uncertain.around_events.append(replace(at_end, stored_to=step.at + FIRST_PULL))

    def _waiting(
        self,
        step: TimelineStep,
        ranges: Mapping[int, OffsetRange],
        kind: WindowKind,
        reason: Reason,
        only_listed: bool = True,
    ) -> PullWindow:
        """What waits in the ``ranges`` of queues, for the subscription of the ``step``."""
        return PullWindow(
            self._filters.at(step.row, step.at), step.row.valid_from, BEGINNING, step.at, step.at, ranges,
            only_listed=only_listed, physical_ranges=self._physical_ranges(step.at, self._broker_offsets.log_start),
            kind=kind, reason=reason, mode=step.row.mode,
        )  # fmt: skip

    def _note_deleted_at_start(
        self, window: PullWindow, deleted: Mapping[int, OffsetRange], reasons: Mapping[int, Reason | StartReason]
    ) -> None:
        """The group starts with ``window``: what the broker ``deleted`` before is lost, or was pulled earlier."""
        is_first = window.reason is Reason.FIRST_START
        if not self._broker_offsets.min_offsets:
            before = {each: (NO_BEGIN, begin) for each, (begin, _) in window.physical_ranges.items()}
            offsets = {each: window.range_of(each) for each in before}
            gone = replace(window, offsets=offsets, only_listed=True, physical_ranges=before)
            self._note_deleted(gone, Reason.BEGAN_EARLIER if is_first else Reason.DELETED_TONIGHT)
        if deleted:
            lost = replace(window, offsets=deleted, only_listed=True, kind=WindowKind.LOST, reason=Reason.DELETED)
            self.lost.append(lost)
            self._note_deleted(lost, Reason.DELETED_TONIGHT)
        if is_first or window.reason is Reason.OFFSETS_REMOVED:
            shortened = [
                queue_id
                for queue_id in self._group_start.shortened_tonight()
                if reasons.get(queue_id) not in _AT_KNOWN_OFFSETS
            ]
            in_others = NO_END if window.only_listed else 0
            skipped = {
                each: (0, window.offsets[each][0] if each in window.offsets else in_others) for each in shortened
            }
            earlier = replace(
                window, offsets=skipped, only_listed=True,
                physical_ranges=self._physical_ranges(window.stored_to, log_start=0),
            )  # fmt: skip
            self._note_deleted(earlier, Reason.BEGAN_EARLIER)

    def _add_by_reason(self, window: PullWindow, reasons: Mapping[int, Reason | StartReason]) -> PullWindow:
        """Adds a window for the queues of each reason. Returns that of the queues that no other one lists."""
        rest = replace(window, reason=reasons[_OTHER_QUEUES])
        for reason in dict.fromkeys(reasons.values()):
            if reason != rest.reason:
                queues = {queue_id: window.offsets[queue_id] for queue_id, other in reasons.items() if other == reason}
                kind = WindowKind.RESET if reason is Reason.RESET else window.kind
                self._windows.add(replace(window, offsets=queues, only_listed=True, kind=kind, reason=reason))
                nothing = {} if rest.only_listed else dict.fromkeys(queues, (0, 0))
                listed = {queue_id: offsets for queue_id, offsets in rest.offsets.items() if queue_id not in queues}
                rest = replace(rest, offsets=listed | nothing)
        if not rest.only_listed or rest.offsets:
            self._windows.add(rest)
        return rest

    def _note_deleted(self, skipped: PullWindow, reason: Reason) -> None:
        """The group may have pulled the messages of a window before the broker deleted some of them in this night."""
        if skipped.offsets and self._broker_offsets.log_start > 0:
            log_start = self._offsets_so_far.log_start or 0
            self.uncertain.in_windows.append(deleted_tonight(skipped, log_start, reason))

    def _start_reasons(self, position: Position, reason: Reason, at: int) -> dict[int, Reason | StartReason]:
        """Why the group starts at ``at`` (ms) where it starts, by queue id, and in _OTHER_QUEUES."""
        reasons: dict[int, Reason | StartReason] = dict.fromkeys([*position.offsets, _OTHER_QUEUES], reason)
        if reason is Reason.FIRST_START:
            reasons |= self._group_start.reasons(reasons, at, self._events.resets)
            reasons |= dict.fromkeys(self._events.commits.get(at, {}).keys() & reasons.keys(), StartReason.COMMITTED)
        return reasons | dict.fromkeys(position.reset & reasons.keys(), Reason.RESET)

    def _reset_while_away(self, position: Position, step: TimelineStep) -> None:
        """An operator set the offset of one queue: the group will pull the messages from there when it can."""
        queue_id, _, offset = self._reset_to(step)
        self._windows.leave(queue_id)
        position.offsets[queue_id] = offset
        position.reset.add(queue_id)

    def _reset_while_pulling(self, pulling: Pulling, step: TimelineStep, later: Sequence[TimelineStep]) -> Pulling:
        """An operator set the offset of one queue: the group pulls the messages from there now."""
        if step.row.pops and self._filters.are_reset_by_clients:
            return pulling  # clients that pop have no offset to reset
        queue_id, asked, offset = self._reset_to(step)
        self._windows.leave(queue_id)
        self._windows.at = step.at
        self._windows.move(queue_id)
        window = self._waiting(step, {queue_id: (offset, NO_END)}, WindowKind.RESET, Reason.RESET)
        self._windows.add(window)
        if asked < offset:
            self._note_deleted(replace(window, offsets={queue_id: (asked, offset)}), Reason.BEGAN_EARLIER)
        next_step = next((each for each in later if each.moment in (Moment.CHANGE, Moment.STOP)), None)
        if self._filters.are_reset_by_clients and next_step is not None and next_step.at < step.at + CLIENT_RESET:
            stays = next_step.moment is Moment.CHANGE
            uncertain = uncertain_reset(window, self._filters.at(next_step.row, next_step.at) if stays else None)
            self.uncertain.around_events += [uncertain] if uncertain is not None else []
        return Pulling(Reason.RESET)

    def _reset_to(self, step: TimelineStep) -> tuple[int, int, int]:
        """The queue of a RESET, the offset that the operator asked for, and the first one there is from that on."""
        assert step.reset is not None
        queue_id, asked = step.reset.queue_id or 0, step.reset.queue_offset or 0
        return queue_id, asked, max(asked, self._broker_offsets.min_offset(self.group.key[1], queue_id))

    def _restart(self, state: Pulling | Away, step: TimelineStep) -> Pulling | Away:
        """Queues begin again. What waited for the group in the old ones is lost to it.

        The broker may hold a pull of an old queue: when that ends, the group goes on at the end of the new one.
        """
        for restart in step.restarts:
            self._windows.leave(restart.queue_id)
            self._windows.move(restart.queue_id)
            if isinstance(state, Pulling):
                self.uncertain.held_in_old_queue(restart, step.row)
            elif not (state.reason is Reason.OFFSETS_REMOVED and restart.keeps_offsets):
                state.position.begin_again(restart)
        return Pulling(Reason.QUEUE_BEGAN_AGAIN) if isinstance(state, Pulling) else state

    def _physical_ranges(self, at: int, log_start: int) -> Mapping[int, OffsetRange]:
        """By queue id, where the entries are that a queue has at ``at`` (ms), if it began again.

        If the copy of the store has no consume queues, these are only those whose messages are in the log.
        """
        topic, offsets = self.group.key[1], self._offsets_so_far
        ranges = physical_ranges_at(offsets.begins(topic), self._broker_offsets.restarts.get(topic, ()), at, log_start)
        if log_start > 0 and not self._broker_offsets.min_offsets:
            present = {
                queue_id: ranges.get(queue_id, EVERYWHERE) for queue_id in offsets.topic_offsets(topic).queue_ids
            }
            ranges |= {queue_id: (max(begin, log_start), end) for queue_id, (begin, end) in present.items()}
        return ranges

    def _catch_up(self, row: SubscriptionRow) -> None:
        """A group that was behind continues at its offset of the night before, with its subscription of that time."""
        ranges = self._offsets_so_far.not_pulled(self.group.key)
        self._windows.queues_behind = set(ranges)
        if ranges:
            as_of = self._offsets_so_far.as_of or row.valid_from
            physical_ranges = self._physical_ranges(self._windows.at, log_start=0)
            window = PullWindow(
                self._filters.at(row, as_of), row.valid_from, offsets=ranges, only_listed=True,
                physical_ranges=physical_ranges, kind=WindowKind.BACKLOG, reason=Reason.WAS_BEHIND, mode=row.mode,
            )  # fmt: skip
            self._windows.add(self._windows.unread.keep(window, as_of))

    def _keep_up(self) -> None:
        """The group pulls when the night ends. It keeps up, unless a committed offset contradicts that."""
        if self._broker_offsets.watched_to is not None and self._broker_offsets.taken_at is not None:
            self.uncertain.not_watched(self._broker_offsets.watched_to, self._broker_offsets.taken_at + 1, {})
        self.group.decided_to = self._committed.limit(self._windows, FOREVER)
        self.group.is_behind = self._committed.is_behind(self._windows)

    def _wait(self, away: Away) -> None:
        """The group does not pull when the night ends: it left, or the broker refuses its pulls.

        Its deliveries are decided up to its committed offset, or up to the offset that an operator set; without
        either, up to where it stopped. A committed offset that may be older than the stop does not count. If the
        broker has no offset any more, what the group would get if it came back now is not decided.
        """
        if self._offsets_so_far.are_removed(self.group.key, self._broker_offsets):
            topic = self._offsets_so_far.topics[self.group.key[1]]
            self.group.decided_to = self._group_start.offsets(topic.queue_ids)
            return
        position, left = away.position, away.left
        self.group.stopped_at = position.stored_from
        present = self._committed.present_at(self.group.stopped_at)
        by_the_group = {each: offset for each, offset in present.items() if each not in position.reset}
        if left is not None and self._is_in_flight(left):
            self._note_in_flight(left, by_the_group)
        if left is not None and self._may_commit_later(left):
            saved_at = max(self._broker_offsets.committed_at or 0, self._broker_offsets.taken_at or 0)
            self._commit(away, saved_at, by_the_group)
        others = self._committed.uncommitted_at(self.group.stopped_at).items()
        committed = {each: offset for each, offset in others if each not in position.offsets}
        committed |= present
        self.group.decided_to = {**position.offsets, **committed}
        # A committed offset that an operator set does not say how far the group had come.
        read = self._committed.with_handed_out(committed)
        self._windows.limit({queue_id: offset for queue_id, offset in read.items() if queue_id not in position.reset})
