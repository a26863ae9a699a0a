"""One group on one topic in a night: when it pulls, from which offset, and under which subscription.

Sources: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor, PullMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from filtering.consumption.allocation import ClientTags
from filtering.consumption.committed_offsets import GroupCommits
from filtering.consumption.filters_in_force import FiltersInForce
from filtering.consumption.group_progress import GroupNight
from filtering.consumption.group_start import GroupStart
from filtering.consumption.held_pulls import uncertain_change
from filtering.consumption.offsets import OffsetsSoFar
from filtering.consumption.planned_windows import PlannedWindows
from filtering.consumption.position import Position
from filtering.consumption.renewals import QueueRenewal, places_at
from filtering.consumption.timeline import Moment, Step, Timeline
from filtering.delivery.pull_window import BEGINNING, FOREVER, OffsetRange, PullWindow, UncertainChange, WindowKind
from filtering.subscriptions.subscription_row import SubscriptionRow

WAS_ONLINE = "was online when the night began"
WAS_BEHIND = "was behind when the night began"
FIRST_START = "first start"
RETURNED = "returned"
ANSWERED = "the broker answers its pulls, which it refused before"
OFFSETS_REMOVED = "begins as at its first start: the broker had no offset of it any more"
CHANGED = "subscription changed"
RESET = "reset by an operator"
_OTHER_QUEUES = -1
"""Instead of a queue id: all queues that are not listed."""
QUEUE_BEGAN_AGAIN = "a queue began again"
DELETED = "the broker deleted it before the group pulled it"


class GroupNightPlan:
    """Computes the pull windows of one group on one topic in a night. ``line``: what happens to it in the night."""

    def __init__(
        self, group_start: GroupStart, line: Timeline, filters: FiltersInForce, clients: Sequence[ClientTags]
    ) -> None:
        self.group = GroupNight(group_start.key)
        self.uncertain_changes: list[UncertainChange] = []
        self.lost: list[PullWindow] = []
        self._group_start = group_start
        self._offsets_so_far = group_start.offsets_so_far
        self._broker_offsets = group_start.broker_offsets
        self._line = line
        self._filters = filters
        self._clients = clients
        new_from = group_start.offsets_so_far.of_topic(self.group.key[1]).ends_by_queue
        self._windows = PlannedWindows(clients, filters, new_from)
        self.online, self.backlog = self._windows.online, self._windows.backlog
        self.undecided = self._windows.uncertain
        """What only some clients of the group keep, where it is not known which of them read it."""
        self._position = Position()
        self._committed = GroupCommits(group_start, line.moves)
        self._begins_anew = False
        """Whether the broker has no offset any more of the group, which is away."""
        self._reason = WAS_ONLINE

    def run(self, unread: Timeline | None = None) -> None:
        """Plans the night.

        ``unread``: the end of the last night, whose messages it could not read, because the copy of the log was older
        than the rest of the snapshot; None if nothing happened to the group then.
        """
        line = self._line
        if line.first is None and not line.steps:
            return
        self._resume(unread)
        is_pulling = line.pulls_at_first
        for i, step in enumerate(line.steps):
            self._take(step, is_pulling)
            is_pulling = step.moment in (Moment.START, Moment.CHANGE) or (
                is_pulling and step.moment in (Moment.RESET, Moment.RENEWAL)
            )
            if is_pulling:
                self._go_on(step.row, step.at, line.steps[i + 1 :])
        self._windows.read_later()
        self.group.is_consuming = is_pulling
        if is_pulling:
            # If a committed offset contradicts the assumption that the group keeps up, the offset counts.
            limits = self._committed.limit(self._windows.stint, FOREVER)
            self.group.behind = bool(limits)
            self.group.told_to.update(limits)
        else:
            self._wait()
        self.group.told_to = self._windows.unread.begins(self._broker_offsets) | self.group.told_to

    def _resume(self, unread: Timeline | None) -> None:
        """The group goes on as it was when the last night ended."""
        line = self._line
        last_night = None if unread is None else self._go_back(unread)
        if line.pulls_at_first:
            assert line.first is not None
            as_of = self._offsets_so_far.as_of or 0
            self._windows.stint.at = as_of
            self._catch_up(line.first)
            self._go_on(line.first, BEGINNING if unread is None else as_of + 1, line.steps)
        elif self._offsets_so_far.removed(self.group.key):
            self._begins_anew = True
        elif last_night is not None and last_night.stopped_at is not None:
            behind = self._offsets_so_far.behind(self.group.key)
            told_to = {queue_id: told_to for queue_id, (told_to, _) in behind.items()}
            self._position = Position(told_to | last_night.told_to, last_night.stopped_at)
        else:
            self._position = Position(self._offsets_so_far.waiting(self.group.key))

    def _take(self, step: Step, is_pulling: bool) -> None:
        """What a step changes. ``is_pulling``: whether the group pulled before it."""
        match step.moment:
            case Moment.BEGIN:
                self._begins_anew = False
                self._reason = FIRST_START
                self._position = self._group_start.position(step.at, self._line.resets)
            case Moment.START:
                if self._begins_anew:
                    self._reason = OFFSETS_REMOVED
                    self._position = self._group_start.position_anew(step.at, self._position)
                elif self._reason != FIRST_START:
                    was_refused = step.before is not None and step.before.is_consuming
                    self._reason = ANSWERED if was_refused else RETURNED
                self._start(step, WindowKind.RESET if self._begins_anew else WindowKind.BACKLOG)
                self._begins_anew = False
            case Moment.CHANGE:
                self._reason = CHANGED
                assert step.before is not None
                self._note_uncertain(step.before, step.row, step.at)
            case Moment.STOP:
                self._reason = ""
                self._position = Position(self._committed.limit(self._windows.stint, step.at), stored_from=step.at)
            case Moment.RESET:
                self._reset(step, is_pulling)
            case Moment.RENEWAL:
                if is_pulling:
                    self._reason = QUEUE_BEGAN_AGAIN
                for renewal in step.renewals:
                    self._renew(renewal, is_pulling)

    def _go_back(self, unread: Timeline) -> GroupNight:
        """Plans new messages from before the last night's end as that night would have. Returns the progress."""
        committed = {self.group.key: self._offsets_so_far.committed(self.group.key)}
        broker_offsets = replace(self._broker_offsets, committed=committed, committed_at=None)
        so_far = OffsetsSoFar(self._offsets_so_far.read_to)
        group_start = replace(self._group_start, offsets_so_far=so_far, broker_offsets=broker_offsets)
        plan = GroupNightPlan(group_start, unread, self._filters, self._clients)
        plan.run()
        end = (self._offsets_so_far.as_of or 0) + 1
        # Of earlier nights' messages, the last night filtered those of its backlog.
        for window in (*plan.online, *plan.backlog):
            self.online.append(replace(window, stored_to=min(window.stored_to, end), kind=WindowKind.ONLINE))
        return plan.group

    def _go_on(self, row: SubscriptionRow, begin: int, later: Sequence[Step]) -> None:
        """The group pulls messages stored from ``begin`` (ms) until its next step."""
        end = later[0].at if later else FOREVER
        self._windows.unread.note_pulls(row, begin, end)
        for start, stop, message_filter in self._filters.during(row, begin, end):
            window = PullWindow(message_filter, row.valid_from, start, stop, reason=self._reason)
            self._windows.add(self.online, window)

    def _start(self, step: Step, kind: WindowKind) -> None:
        """The group pulls what waits for it. What the broker deleted is lost to it."""
        topic, position = self.group.key[1], self._position
        self._windows.start(step.at)
        ranges: dict[int, OffsetRange] = {}
        deleted: dict[int, OffsetRange] = {}
        for queue_id, offset in position.offsets.items():
            first = max(offset, self._broker_offsets.min_offset(topic, queue_id))
            ranges[queue_id] = first, FOREVER
            if queue_id in position.reset:
                self._windows.stint.move(queue_id)
            elif first > offset:
                self.group.lost[queue_id] = self.group.lost.get(queue_id, 0) + first - offset
                self._committed.lost_to[queue_id] = first
                deleted[queue_id] = offset, first
        window = PullWindow(
            self._filters.at(step.row, step.at), step.row.valid_from, BEGINNING, step.at, step.at, ranges,
            only_listed=position.stored_from is not None, places=self._places(step.at, self._broker_offsets.log_start),
            kind=kind, reason=self._reason,
        )  # fmt: skip
        if deleted:
            self.lost.append(replace(window, offsets=deleted, only_listed=True, kind=WindowKind.LOST, reason=DELETED))
        reasons = self._start_reasons(ranges, step.at)
        window = replace(window, reason=reasons.pop(_OTHER_QUEUES))
        for reason in dict.fromkeys(reasons.values()):
            if reason != window.reason:
                queues = {queue_id: ranges[queue_id] for queue_id, other in reasons.items() if other == reason}
                of_queues = WindowKind.RESET if reason == RESET else kind
                part = replace(window, offsets=queues, only_listed=True, kind=of_queues, reason=reason)
                self._windows.add(self.backlog, part)
                nothing = {} if window.only_listed else dict.fromkeys(queues, (0, 0))
                listed = {queue_id: each for queue_id, each in window.offsets.items() if queue_id not in queues}
                window = replace(window, offsets=listed | nothing)
        if not window.only_listed or window.offsets:
            self._windows.add(self.backlog, window)
        if position.stored_from is not None:
            others = dict.fromkeys(ranges, (0, 0))
            rest = replace(window, stored_from=position.stored_from, offsets=others, only_listed=False)
            self._windows.add(self.backlog, rest)

    def _start_reasons(self, queue_ids: Iterable[int], at: int) -> dict[int, str]:
        """Why the group starts at ``at`` (ms) where it starts, by queue id, and in _OTHER_QUEUES."""
        reasons = dict.fromkeys([*queue_ids, _OTHER_QUEUES], self._reason)
        if self._reason == FIRST_START:
            of_first = self._group_start.reasons(reasons, at, self._line.resets)
            reasons = {queue_id: f"{FIRST_START}: {reason}" for queue_id, reason in of_first.items()}
        return reasons | dict.fromkeys(self._position.reset & reasons.keys(), RESET)

    def _reset(self, step: Step, is_pulling: bool) -> None:
        """An operator set the offset of one queue: the group pulls the messages from there, now or when it can."""
        assert step.reset is not None
        queue_id, offset = step.reset.queue_id or 0, step.reset.queue_offset or 0
        offset = max(offset, self._broker_offsets.min_offset(self.group.key[1], queue_id))
        self._windows.leave(queue_id)
        if not is_pulling:
            self._position.offsets[queue_id] = offset
            self._position.reset.add(queue_id)
            return
        self._reason = RESET
        self._windows.stint.at = step.at
        self._windows.stint.move(queue_id)
        message_filter = self._filters.at(step.row, step.at)
        ranges = {queue_id: (offset, FOREVER)}
        window = PullWindow(
            message_filter, step.row.valid_from, BEGINNING, step.at, step.at, ranges, only_listed=True,
            places=self._places(step.at, self._broker_offsets.log_start), kind=WindowKind.RESET, reason=RESET,
        )  # fmt: skip
        self._windows.add(self.backlog, window)

    def _renew(self, renewal: QueueRenewal, is_pulling: bool) -> None:
        """A queue begins again. What waited for the group in the old one is lost to it."""
        self._windows.leave(renewal.queue_id)
        self._windows.stint.move(renewal.queue_id)
        if not is_pulling and not (self._begins_anew and renewal.keeps_offsets):
            self._position.begin_again(renewal)

    def _places(self, at: int, log_start: int) -> Mapping[int, OffsetRange]:
        """By queue id, where the entries are that a queue has at ``at`` (ms), if it began again."""
        topic = self.group.key[1]
        return places_at(
            self._offsets_so_far.begins(topic), self._broker_offsets.renewals.get(topic, ()), at, log_start
        )

    def _catch_up(self, row: SubscriptionRow) -> None:
        """A group that was behind continues at its offset of the night before, with its subscription of that time."""
        ranges = self._offsets_so_far.behind(self.group.key)
        self._windows.stint.behind = set(ranges)
        if ranges:
            as_of = self._offsets_so_far.as_of or row.valid_from
            places = self._places(self._windows.stint.at, log_start=0)
            window = PullWindow(
                self._filters.at(row, as_of), row.valid_from, offsets=ranges, only_listed=True, places=places,
                kind=WindowKind.BACKLOG, reason=WAS_BEHIND,
            )  # fmt: skip
            self._windows.add(self.backlog, self._windows.unread.keep(self.backlog, window, as_of))

    def _wait(self) -> None:
        """The group does not pull when the night ends: it left, or the broker refuses its pulls.

        Its deliveries are decided up to its committed offset, or up to the offset that an operator set; without
        either, up to where it stopped. A committed offset that may be older than the stop does not count. If the
        broker has no offset any more, what the group would get if it came back now is not decided.
        """
        if self._offsets_so_far.are_removed(self.group.key, self._broker_offsets):
            topic = self._offsets_so_far.topics[self.group.key[1]]
            self.group.told_to = self._group_start.offsets(topic.queue_ids)
            return
        self.group.stopped_at = self._position.stored_from
        others = self._committed.uncommitted_at(self.group.stopped_at).items()
        committed = {each: offset for each, offset in others if each not in self._position.offsets}
        committed |= self._committed.present_at(self.group.stopped_at)
        self.group.told_to = {**self._position.offsets, **committed}
        # A committed offset that an operator set does not say how far the group had come.
        reset = self._position.reset
        self._windows.stint.limit({queue_id: offset for queue_id, offset in committed.items() if queue_id not in reset})

    def _note_uncertain(self, before: SubscriptionRow, after: SubscriptionRow, at: int) -> None:
        change = uncertain_change(before, self._filters.at(before, at - 1), self._filters.at(after, at), at)
        if change is not None:
            self.uncertain_changes.append(change)
