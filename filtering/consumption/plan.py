"""What becomes available to each group in one night: pull windows for new messages and for backlogs.

Confirmed message by message against a living broker (docs/FILTERS.md, Consumption). A group that is there pulls a
message when it is stored. What lies at or beyond its committed offset when it comes back is filtered by the
subscription in force then. Sources: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor,
PullMessageProcessor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from filtering.broker_config import BrokerConfig
from filtering.consumption.allocation import ClientTags, client_tags
from filtering.consumption.offsets import BrokerOffsets, Key, Offsets, OffsetsSoFar
from filtering.consumption.timeline import Moment, Step, Timeline, timeline
from filtering.delivery.message_filter import MessageFilter, message_filter, reads_others
from filtering.delivery.pull_window import BEGINNING, FOREVER, PullWindow, UncertainChange
from filtering.predicate import Predicate
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import ConsumeFrom, Operation, SubscriptionEvent
from filtering.subscriptions.history import SubscriptionRow

COMMIT_DELAY = 30_000
"""ms: a consumer that keeps up has committed what is older. A held pull ends after 15 to 20 s; then its client
commits within 5 s, and the broker saves that within 5 s more."""
HELD_PULL = 5_000
"""ms: how long messages that did not match may wait in a held pull, and meet a changed expression."""


@dataclass
class GroupNight:
    """What one group does on one topic in a night.

    ``told_to``: where deliveries are told up to a known offset, by queue id; other queues are told to their end, or,
    where the group left at ``left_at`` (ms), to what was stored before. ``lost``: entries by queue id that the broker
    deleted before the group could pull them. ``behind``: it is there and does not keep up. ``repeated_from``: the
    least offset by queue id that the group pulled again. ``starts_at_end``: when it began at the end of its queues.
    """

    key: Key
    is_consuming: bool = False
    left_at: int | None = None
    told_to: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    repeated_from: dict[int, int] = field(default_factory=dict)
    behind: bool = False
    starts_at_end: int | None = None


@dataclass(frozen=True)
class NightPlan:
    """``online`` windows decide new messages only; ``backlog`` windows also those of earlier nights."""

    online: Sequence[PullWindow]
    backlog: Sequence[PullWindow]
    changes: Sequence[UncertainChange]
    groups: Sequence[GroupNight]


def plan_night(
    history: Iterable[SubscriptionRow],
    events: Iterable[SubscriptionEvent],
    told: OffsetsSoFar,
    broker_offsets: BrokerOffsets,
    config: BrokerConfig,
) -> NightPlan:
    """The plan of the night after ``told.as_of``. ``history`` is that of all ``events`` so far."""
    rows_of: defaultdict[Key, list[SubscriptionRow]] = defaultdict(list)
    rows_of_group: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
    for row in history:
        rows_of[row.consumer_group, row.topic].append(row)
        rows_of_group[row.consumer_group].append(row)
    events = list(events)
    resets, consume_from = _of_events(events)
    tags_of_clients = client_tags(events, broker_offsets.queue_ids)
    online: list[PullWindow] = []
    backlog: list[PullWindow] = []
    changes: list[UncertainChange] = []
    groups: list[GroupNight] = []
    for key, rows in rows_of.items():
        filters = _Filters(rows_of_group[key[0]], config)
        night = _Night(key, told, broker_offsets, filters, consume_from.get(key, ConsumeFrom.LAST))
        night.clients = tags_of_clients.get(key, ())
        night.run(timeline(rows, resets.get(key, ()), told.as_of))
        online += night.online
        backlog += night.backlog
        changes += night.changes
        groups.append(night.group)
    return NightPlan(online, backlog, changes, groups)


def _of_events(
    events: Iterable[SubscriptionEvent],
) -> tuple[Mapping[Key, Sequence[SubscriptionEvent]], Mapping[Key, ConsumeFrom]]:
    """The offset resets, and what each group's clients ask for at their first start."""
    resets: defaultdict[Key, list[SubscriptionEvent]] = defaultdict(list)
    consume_from: dict[Key, ConsumeFrom] = {}
    for event in events:
        if event.operation is Operation.RESET_OFFSET:
            resets[event.group, event.topic or ""].append(event)
        elif event.operation is not Operation.PULL_SUBSCRIPTION:
            for subscription in event.subscriptions:
                consume_from.setdefault((event.group, subscription["topic"]), event.consume_from)
    return resets, consume_from


class _Filters:
    """The message filters of one group's subscriptions."""

    def __init__(self, rows: Sequence[SubscriptionRow], config: BrokerConfig) -> None:
        self._rows = rows
        self._config = config

    def at(self, row: SubscriptionRow, instant: int) -> MessageFilter | None:
        """The filter of a subscription at an instant (ms); None where the broker refuses its pulls."""
        others = self._in_force(instant) if reads_others(row, self._config) else ()
        return message_filter(row, others, self._config)

    def during(self, row: SubscriptionRow, begin: int, end: int) -> Iterable[tuple[int, int, MessageFilter | None]]:
        """The filters of a subscription from ``begin`` to ``end``, each with the part of that time."""
        cuts = [begin, end]
        if reads_others(row, self._config):
            cuts[1:1] = sorted({other.valid_from for other in self._rows if begin < other.valid_from < end})
        for start, stop in pairwise(cuts):
            yield start, stop, self.at(row, max(start, row.valid_from))

    def _in_force(self, instant: int) -> list[SubscriptionRow]:
        return [
            row for row in self._rows if row.valid_from <= instant and (row.valid_to is None or instant < row.valid_to)
        ]


class _Night:
    """Follows one group on one topic through a night."""

    def __init__(
        self, key: Key, told: OffsetsSoFar, broker: BrokerOffsets, filters: _Filters, consume_from: ConsumeFrom
    ) -> None:
        self.group = GroupNight(key)
        self.online: list[PullWindow] = []
        self.backlog: list[PullWindow] = []
        self.changes: list[UncertainChange] = []
        self._told = told
        self._broker = broker
        self._filters = filters
        self._consume_from = consume_from
        self.clients: Sequence[ClientTags] = ()
        self._away_since: int | None = None
        self._stint = 0
        """Since when (ms) the group consumes without a break or a reset."""
        self._stint_windows: list[tuple[list[PullWindow], int]] = []
        """The windows of that time: a list, and an index into it."""

    def run(self, line: Timeline) -> None:
        if line.first is None and not line.steps:
            return
        consumes = line.consumes_at_first
        if consumes:
            assert line.first is not None
            self._stint = self._told.as_of or 0
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
            if step.row.is_consuming and step.moment is not Moment.RESET:
                self._go_on(step.row, step.at, later)
        last = line.last
        self.group.is_consuming = last is not None and last.is_consuming
        if self.group.is_consuming:
            self._check_committed()
        else:
            self._stay_away(was_away=not consumes and not any(step.moment is Moment.START for step in line.steps))

    def _go_on(self, row: SubscriptionRow, begin: int, later: Sequence[Step]) -> None:
        """The group pulls what is stored from ``begin`` on, until the next change of its subscription."""
        end = next((step.at for step in later if step.moment is not Moment.RESET), FOREVER)
        for start, stop, found in self._filters.during(row, begin, end):
            if found is not None:
                self._add(self.online, PullWindow(found, row.valid_from, start, stop))

    def _start(self, step: Step, is_first: bool) -> None:
        """The group comes, or comes back: it pulls from its offset, or from where a first start begins."""
        topic = self.group.key[1]
        self._stint, self._stint_windows = step.at, []
        found = self._filters.at(step.row, step.at)
        if is_first:
            offsets = self._first_offsets(step.at)
        elif self._away_since is not None:
            # It left in this night, and no snapshot tells its offsets since: what was stored before counts as consumed.
            if found is not None:
                window = PullWindow(found, step.row.valid_from, self._away_since, step.at, step.at)
                self._add(self.backlog, window)
            self._away_since = None
            return
        else:
            offsets = dict(self._told.of(self.group.key))
        for queue_id, offset in offsets.items():
            deleted = self._broker.min_offset(topic, queue_id) - offset
            if deleted > 0:
                self.group.lost[queue_id] = self.group.lost.get(queue_id, 0) + deleted
                offsets[queue_id] += deleted
        self._away_since = None
        if found is not None and self.group.starts_at_end is None:
            ranges = {queue_id: (offset, FOREVER) for queue_id, offset in offsets.items()}
            window = PullWindow(found, step.row.valid_from, BEGINNING, step.at, step.at, ranges)
            self._add(self.backlog, window)

    def _first_offsets(self, at: int) -> dict[int, int]:
        """Where a group begins that has no offset yet (CONSUME_FROM_FIRST_OFFSET, CONSUME_FROM_LAST_OFFSET)."""
        topic = self.group.key[1]
        known = self._broker.min_offsets.get(topic, {})
        if self._consume_from is ConsumeFrom.LAST and not known and not self._broker.is_whole:
            self.group.starts_at_end = at
            return {}
        if self._consume_from is ConsumeFrom.LAST and any(offset > 0 for offset in known.values()):
            # The broker answers 0, and not the end, while the first entry of a queue is still there.
            if all(offset > 0 for offset in known.values()):
                self.group.starts_at_end = at
                return {}
            return {queue_id: 0 if offset == 0 else FOREVER for queue_id, offset in known.items()}
        return {queue_id: offset for queue_id, offset in known.items() if offset > 0}

    def _reset(self, step: Step) -> None:
        """An operator set the offset of one queue: what lies behind it comes again, now."""
        assert step.reset is not None
        queue_id, offset = step.reset.queue_id or 0, step.reset.queue_offset or 0
        offset = max(offset, self._broker.min_offset(self.group.key[1], queue_id))
        if not step.row.is_consuming:
            self.group.told_to[queue_id] = offset
            return
        self._stint = step.at
        self.group.repeated_from[queue_id] = min(offset, self.group.repeated_from.get(queue_id, offset))
        found = self._filters.at(step.row, step.at)
        if found is not None:
            ranges = {queue_id: (offset, FOREVER)}
            window = PullWindow(found, step.row.valid_from, BEGINNING, step.at, step.at, ranges, only_listed=True)
            self._add(self.backlog, window)

    def _catch_up(self, row: SubscriptionRow) -> None:
        """A group that did not keep up goes on where the night before left it, under the subscription of then."""
        ranges = self._told.behind(self.group.key)
        found = self._filters.at(row, self._told.as_of or row.valid_from)
        if ranges and found is not None:
            self._add(self.backlog, PullWindow(found, row.valid_from, offsets=ranges, only_listed=True))

    def _stay_away(self, was_away: bool) -> None:
        """The group is away when the night ends: told is what it committed, or all that was stored before it left."""
        committed = self._broker.committed.get(self.group.key, {})
        if was_away:
            self.group.told_to = {**self._told.of(self.group.key), **self.group.told_to, **committed}
            return
        self.group.left_at = self._away_since
        self.group.told_to.update(committed)
        self._limit(committed)

    def _check_committed(self) -> None:
        """Where a committed offset contradicts the assumption that the group keeps up, the offset wins."""
        key, broker = self.group.key, self._broker
        if broker.committed_at is None:
            return
        before = self._told.of(key)
        limits: dict[int, int] = {}
        for queue_id, offset in broker.committed.get(key, {}).items():
            stored_at = broker.stored_at(key[1], queue_id, offset)
            if stored_at is not None and max(stored_at, self._stint) < broker.committed_at - COMMIT_DELAY:
                told = before.get(queue_id, 0)
                limits[queue_id] = max(offset, told) if queue_id not in self.group.repeated_from else offset
        if limits:
            self.group.behind = True
            self.group.told_to.update(limits)
            self._limit(limits)

    def _limit(self, offsets: Offsets) -> None:
        """The windows since the last start or reset end at these offsets."""
        for windows, index in self._stint_windows:
            window = windows[index]
            ranges = dict(window.offsets)
            for queue_id, offset in offsets.items():
                if queue_id in ranges or not window.only_listed:
                    low, high = ranges.get(queue_id, (0, FOREVER))
                    ranges[queue_id] = (low, min(high, offset))
            windows[index] = replace(window, offsets=ranges)

    def _add(self, windows: list[PullWindow], window: PullWindow) -> None:
        for part in _by_client(window, self.clients):
            self._stint_windows.append((windows, len(windows)))
            windows.append(part)

    def _note_uncertain(self, before: SubscriptionRow, after: SubscriptionRow, at: int) -> None:
        if is_tag_type(before.expression_type) or is_tag_type(after.expression_type):
            return
        old, new = self._filters.at(before, at - 1), self._filters.at(after, at)
        if old is not None and new is not None and old.expression != new.expression:
            group, topic = self.group.key
            self.changes.append(UncertainChange(group, topic, old.expression, new.expression, at - HELD_PULL, at))


def _by_client(window: PullWindow, clients: Sequence[ClientTags]) -> Iterable[PullWindow]:
    """A window cut at the times at which clients check different tags, and then by client."""
    at = window.available_at
    begin, end = (window.stored_from, window.stored_to) if at is None else (at, at + 1)
    overlapping = [part for part in clients if part.valid_from < end and begin < part.valid_to]
    for part in overlapping:
        if at is None and begin < part.valid_from:
            yield replace(window, stored_from=begin, stored_to=part.valid_from)
        during = (
            window
            if at is not None
            else replace(window, stored_from=max(begin, part.valid_from), stored_to=min(end, part.valid_to))
        )
        for check in dict.fromkeys(part.by_queue.values()):
            if check is not None:
                queues = [queue_id for queue_id, of_queue in part.by_queue.items() if of_queue is check]
                yield _narrowed(during, queues, check)
        begin = part.valid_to
    if not overlapping or (at is None and begin < end):
        yield window if not overlapping else replace(window, stored_from=begin, stored_to=end)


def _narrowed(window: PullWindow, queue_ids: Iterable[int], client_tags: Predicate) -> PullWindow:
    everything = (0, 0) if window.only_listed else (0, FOREVER)
    ranges = {queue_id: window.offsets.get(queue_id, everything) for queue_id in queue_ids}
    checked = replace(window.message_filter, client_tags=client_tags)
    return replace(window, message_filter=checked, offsets=ranges, only_listed=True)
