"""One group on one topic in a night: when it pulls, from which offset, and under which subscription.

Sources: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor, PullMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from filtering.consumption.allocation import ClientTags
from filtering.consumption.client_windows import by_client
from filtering.consumption.filters_in_force import FiltersInForce
from filtering.consumption.offsets import BrokerOffsets, Key, Offsets, OffsetsSoFar
from filtering.consumption.timeline import Moment, Step, Timeline
from filtering.delivery.pull_window import BEGINNING, FOREVER, PullWindow, UncertainChange
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import ConsumeFrom
from filtering.subscriptions.history import SubscriptionRow

COMMIT_DELAY = 30_000
"""ms: a consumer that keeps up has committed all older messages. A held pull ends after 15 to 20 s; then its client
commits within 5 s, and the broker saves the offset within another 5 s."""
HELD_PULL = 5_000
"""ms: how long messages that did not match may wait in a held pull. A changed expression may then filter them."""


@dataclass
class GroupNight:
    """The progress of one group on one topic in a night.

    ``told_to``: by queue id, the offset up to which deliveries are decided. Other queues are decided to their end, or
    if the group left at ``left_at`` (ms), up to what was stored before. ``lost``: by queue id, the number of entries
    that the broker deleted before the group could pull them. ``behind``: the group consumes but does not keep up.
    ``repeated_from``: by queue id, the least offset that the group pulled again. ``starts_at_end``: the time (ms) at
    which the group began at the end of its queues, or None.
    """

    key: Key
    is_consuming: bool = False
    left_at: int | None = None
    told_to: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    repeated_from: dict[int, int] = field(default_factory=dict)
    behind: bool = False
    starts_at_end: int | None = None


class GroupNightPlan:
    """Computes the pull windows of one group on one topic in a night."""

    def __init__(
        self,
        key: Key,
        offsets_so_far: OffsetsSoFar,
        broker: BrokerOffsets,
        filters: FiltersInForce,
        consume_from: ConsumeFrom,
    ) -> None:
        self.group = GroupNight(key)
        self.online: list[PullWindow] = []
        self.backlog: list[PullWindow] = []
        self.changes: list[UncertainChange] = []
        self._offsets_so_far = offsets_so_far
        self._broker = broker
        self._filters = filters
        self._consume_from = consume_from
        self.clients: Sequence[ClientTags] = ()
        self._away_since: int | None = None
        self._stint = 0
        """The time (ms) since which the group consumes without a break or a reset."""
        self._stint_windows: list[tuple[list[PullWindow], int]] = []
        """The windows since the last start: each as a list and an index into it."""
        self._reset_windows: dict[int, int] = {}
        """By queue id, the number of windows in ``_stint_windows`` before its last reset."""
        self._moved: dict[int, int] = {}
        """By queue id, the offset that an operator set while the group was away."""

    def run(self, line: Timeline) -> None:
        if line.first is None and not line.steps:
            return
        consumes = line.consumes_at_first
        if consumes:
            assert line.first is not None
            self._stint = self._offsets_so_far.as_of or 0
            self._catch_up(line.first)
            self._go_on(line.first, BEGINNING, line.steps)
        for i, step in enumerate(line.steps):
            later = line.steps[i + 1 :]
            if step.moment is Moment.START:
                self._start(step, is_first=line.first is None and i == 0)
            elif step.moment is Moment.LEAVE:
                self._away_since = step.at
            elif step.moment is Moment.RESET:
                self._reset(step)
            elif step.before is not None:
                self._note_uncertain(step.before, step.row, step.at)
            if step.row.is_consuming:
                self._go_on(step.row, step.at, later)
        last = line.last
        self.group.is_consuming = last is not None and last.is_consuming
        if self.group.is_consuming:
            self._check_committed()
        else:
            self._stay_away(was_away=not consumes and not any(step.moment is Moment.START for step in line.steps))

    def _go_on(self, row: SubscriptionRow, begin: int, later: Sequence[Step]) -> None:
        """The group pulls messages stored from ``begin`` (ms) until its next step."""
        end = later[0].at if later else FOREVER
        for start, stop, message_filter in self._filters.during(row, begin, end):
            if message_filter is not None:
                self._add(self.online, PullWindow(message_filter, row.valid_from, start, stop))

    def _start(self, step: Step, is_first: bool) -> None:
        """The group starts, or starts again: it pulls from its offset, or from where a first start begins."""
        topic = self.group.key[1]
        self._stint, self._stint_windows, self._reset_windows = step.at, [], {}
        message_filter = self._filters.at(step.row, step.at)
        moved, self._moved = self._moved, {}
        skipped = dict.fromkeys(moved, (0, 0))
        for queue_id, offset in moved.items():
            self._pull_again(queue_id, offset, step)
        if is_first:
            offsets = self._first_offsets(step.at)
        elif self._away_since is not None:
            # It left in this night and no snapshot has its offsets: messages stored before count as consumed.
            if message_filter is not None:
                window = PullWindow(message_filter, step.row.valid_from, self._away_since, step.at, step.at, skipped)
                self._add(self.backlog, window)
            self._away_since = None
            return
        else:
            offsets = self._offsets_so_far.of(self.group.key)
        offsets = {queue_id: offset for queue_id, offset in offsets.items() if queue_id not in moved}
        for queue_id, offset in offsets.items():
            deleted = self._broker.min_offset(topic, queue_id) - offset
            if deleted > 0:
                self.group.lost[queue_id] = self.group.lost.get(queue_id, 0) + deleted
                offsets[queue_id] += deleted
        self._away_since = None
        if message_filter is not None and self.group.starts_at_end is None:
            ranges = skipped | {queue_id: (offset, FOREVER) for queue_id, offset in offsets.items()}
            window = PullWindow(message_filter, step.row.valid_from, BEGINNING, step.at, step.at, ranges)
            self._add(self.backlog, window)

    def _first_offsets(self, at: int) -> dict[int, int]:
        """Where a group without offsets begins (CONSUME_FROM_FIRST_OFFSET, CONSUME_FROM_LAST_OFFSET)."""
        topic = self.group.key[1]
        known = self._broker.min_offsets.get(topic, {})
        if self._consume_from is ConsumeFrom.LAST and not known and not self._broker.is_whole:
            self.group.starts_at_end = at
            return {}
        if self._consume_from is ConsumeFrom.LAST and any(offset > 0 for offset in known.values()):
            # The broker answers 0 instead of the end while a queue still has its first entry.
            if all(offset > 0 for offset in known.values()):
                self.group.starts_at_end = at
                return {}
            return {queue_id: 0 if offset == 0 else FOREVER for queue_id, offset in known.items()}
        return {queue_id: offset for queue_id, offset in known.items() if offset > 0}

    def _reset(self, step: Step) -> None:
        """An operator set the offset of one queue: the group pulls the messages from there, now or when it returns."""
        assert step.reset is not None
        queue_id, offset = step.reset.queue_id or 0, step.reset.queue_offset or 0
        offset = max(offset, self._broker.min_offset(self.group.key[1], queue_id))
        if not step.row.is_consuming:
            self._moved[queue_id] = offset
            return
        self._stint = step.at
        self._reset_windows[queue_id] = len(self._stint_windows)
        self._pull_again(queue_id, offset, step)

    def _pull_again(self, queue_id: int, offset: int, step: Step) -> None:
        """The group pulls the messages of a queue from an offset that an operator set."""
        self.group.repeated_from[queue_id] = min(offset, self.group.repeated_from.get(queue_id, offset))
        message_filter = self._filters.at(step.row, step.at)
        if message_filter is not None:
            ranges = {queue_id: (offset, FOREVER)}
            window = PullWindow(
                message_filter, step.row.valid_from, BEGINNING, step.at, step.at, ranges, only_listed=True
            )
            self._add(self.backlog, window)

    def _catch_up(self, row: SubscriptionRow) -> None:
        """A group that was behind continues at its offset of the night before, with its subscription of that time."""
        ranges = self._offsets_so_far.behind(self.group.key)
        message_filter = self._filters.at(row, self._offsets_so_far.as_of or row.valid_from)
        if ranges and message_filter is not None:
            self._add(self.backlog, PullWindow(message_filter, row.valid_from, offsets=ranges, only_listed=True))

    def _stay_away(self, was_away: bool) -> None:
        """The group is away when the night ends.

        Its deliveries are decided up to its committed offset, or up to the offset that an operator set; without
        either, up to what was stored before it left.
        """
        committed = self._broker.committed.get(self.group.key, {})
        decided = self._offsets_so_far.of(self.group.key) if was_away else {}
        self.group.told_to = {**decided, **self._moved, **committed}
        if not was_away:
            self.group.left_at = self._away_since
            # A committed offset that an operator set does not say how far the group had come.
            self._limit({queue_id: offset for queue_id, offset in committed.items() if queue_id not in self._moved})

    def _check_committed(self) -> None:
        """If a committed offset contradicts the assumption that the group keeps up, the offset counts."""
        key, broker = self.group.key, self._broker
        if broker.committed_at is None:
            return
        before = self._offsets_so_far.of(key)
        limits: dict[int, int] = {}
        for queue_id, offset in broker.committed.get(key, {}).items():
            stored_at = broker.stored_at(key[1], queue_id, offset)
            if stored_at is not None and max(stored_at, self._stint) < broker.committed_at - COMMIT_DELAY:
                decided = before.get(queue_id, 0)
                limits[queue_id] = max(offset, decided) if queue_id not in self.group.repeated_from else offset
        if limits:
            self.group.behind = True
            self.group.told_to.update(limits)
            self._limit(limits)

    def _limit(self, offsets: Offsets) -> None:
        """End the windows of each queue since the last start, or since its last reset, at these offsets."""
        for number, (windows, index) in enumerate(self._stint_windows):
            window = windows[index]
            ranges = dict(window.offsets)
            for queue_id, offset in offsets.items():
                is_since_reset = number >= self._reset_windows.get(queue_id, 0)
                if is_since_reset and (queue_id in ranges or not window.only_listed):
                    low, high = ranges.get(queue_id, (0, FOREVER))
                    ranges[queue_id] = (low, min(high, offset))
            windows[index] = replace(window, offsets=ranges)

    def _add(self, windows: list[PullWindow], window: PullWindow) -> None:
        for part in by_client(window, self.clients):
            self._stint_windows.append((windows, len(windows)))
            windows.append(part)

    def _note_uncertain(self, before: SubscriptionRow, after: SubscriptionRow, at: int) -> None:
        if is_tag_type(before.expression_type) or is_tag_type(after.expression_type):
            return
        old, new = self._filters.at(before, at - 1), self._filters.at(after, at)
        if old is not None and new is not None and old.expression != new.expression:
            group, topic = self.group.key
            self.changes.append(UncertainChange(group, topic, old.expression, new.expression, at - HELD_PULL, at))
