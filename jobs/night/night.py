"""Runs one night: plans it, runs its tasks, and adds the rows of all tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import BrokerOffsets
from filtering.consumption.plan import NightPlan, plan_night
from filtering.consumption.renewals import QueueRenewal
from filtering.delivery.entries import Int64s
from filtering.delivery.filter_data_in_force import filter_data_in_force
from filtering.delivery.pull_window import FOREVER, PullWindow
from filtering.sql92 import Expressions
from filtering.subscriptions.event_lines import event_line, with_offsets
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.commit.changes import Changes
from jobs.night.inputs.hooks import FilterHook, check_groups
from jobs.night.inputs.steps import ALL_STEPS, Step
from jobs.night.late_windows import late_windows
from jobs.night.log.log_plan import read_ranges
from jobs.night.night_tasks import NightTasks
from jobs.night.past.new_messages import NewMessages
from jobs.night.past.past_nights import QUEUE_COLUMNS, StoredQueues
from jobs.night.past.state import BrokerState
from jobs.night.renewals import find_renewals
from jobs.night.rows.offset_rows import committed_rows, current_offset_rows
from jobs.night.rows.progress_rows import Part, ProgressRows, progress_rows
from jobs.night.rows.queue_nights import queue_nights
from jobs.night.tasks.work import TaskResult, TopicWork, works_by_topic
from jobs.night.tasks.writer import WRITTEN_BY_TASKS
from jobs.night.topics import by_topic, filter_data_of_night, first_run_of_backlog, times_of_leaving
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.aggregates import Key, greatest
from schemas.delta.table import Table
from schemas.delta.table_rows import files_that_may_hold, one_of, read_rows, within
from schemas.messages.stored_messages import PhysicalRange
from schemas.messages.stored_ranges import stored_ranges
from schemas.pull_windows import PULL_WINDOWS, late_window_rows, window_rows
from schemas.quarantine import QUARANTINE
from schemas.queue_progress import QUEUE_PROGRESS
from schemas.spark_tasks import Session


@dataclass(frozen=True)
class NightOutcome:
    """The result of a night. ``settled``: the physical offset from which the next night reads, None without a log."""

    plan: NightPlan
    rows: ProgressRows
    result: TaskResult
    settled: int | None


@dataclass
class Night:
    """One night of one broker. ``events``: all subscription events up to its end, ``as_of`` (ms)."""

    broker: BrokerConfig
    state: BrokerState
    events: Sequence[SubscriptionEvent]
    offsets: BrokerOffsets
    new: NewMessages
    changes: Changes
    expressions: Expressions
    session: Session
    as_of: int
    steps: frozenset[Step] = ALL_STEPS
    hooks: Sequence[FilterHook] = ()
    history: list[SubscriptionRow] = field(init=False)
    resets_by_time: dict[str, dict[int, int]] = field(init=False)
    """By the line of the event, the offsets that an offset reset by time sets, by queue id."""
    _events: Sequence[SubscriptionEvent] = field(init=False)
    _tasks: NightTasks = field(init=False)
    _settled: int | None = field(init=False, default=None)

    def run(self) -> NightOutcome:
        """Filters the messages that groups can pull now, and adds the rows to ``changes``."""
        self.history = self.state.history(self.events, self.broker, self.expressions)
        self._tasks = NightTasks(self.broker, self.changes, self.session, self.hooks, self.new)
        self.changes.create_missing((*WRITTEN_BY_TASKS, PULL_WINDOWS))
        self.resets_by_time = self._offsets_of_resets()
        self._events = list(with_offsets(self.events, self.resets_by_time))
        plan = self._plan()
        if self.hooks:
            check_groups(self.hooks, [group.key for group in plan.groups])
        instants = times_of_leaving(plan.groups)
        mended = self._mend()
        new = self._new(plan, instants)
        renewals, new_queues = self._renewals(new), _new_queues(plan, new)
        if renewals or new_queues:  # rare: what groups pull depends on them, so the messages are read once more
            self._tasks.discard(new)
            self.offsets = replace(self.offsets, renewals=renewals, new_queues=new_queues)
            plan = self._plan()
            instants = times_of_leaving(plan.groups)
            new = self._new(plan, instants)
        backlog = self._backlog(plan)  # before the files of new messages are added: it would filter them, too
        new = self._tasks.add(new)
        late = self._late(plan, instants)
        parts = [part for part in (new, backlog, late) if part is not None]
        queues = queue_nights(
            new.result.queues,
            late.result.queues if late is not None else {},
            {topic: known.begins_by_queue for topic, known in self.state.topics.items()},
            renewals,
            instants,
        )
        self.changes.add_rows(PULL_WINDOWS, [window_rows(plan, self.changes.run)])
        rows = progress_rows(
            self.state.topics, plan.groups, self.offsets, parts, queues, instants, self.as_of, self.changes.run
        )
        self._add_progress(rows)
        total = mended
        for part in parts:
            total.add_totals(part.result)
        return NightOutcome(plan, rows, total, self._settled)

    def _plan(self) -> NightPlan:
        if Step.DELIVER not in self.steps:
            return NightPlan((), (), (), ())
        offsets = replace(self.offsets, taken_at=self.as_of)
        return plan_night(self.history, self._events, self.state.offsets, offsets, self.broker, self.state.config)

    def _offsets_of_resets(self) -> dict[str, dict[int, int]]:
        """The offsets of resets by time: those that earlier nights found, and those of tonight."""
        found = dict(self.state.last.resets_by_time) if self.state.last is not None else {}
        by_time = {event_line(event): event for event in self.events if event.reset_to is not None}
        new = {line: event for line, event in by_time.items() if line not in found}
        if Step.DELIVER not in self.steps or not new:
            return found
        queues = StoredQueues(self._rows_of({event.topic or "" for event in new.values()}))
        for line, event in new.items():
            of_topic = queues.offsets_by_time(event.topic or "", event.reset_to or 0, event.at, self.offsets.log_start)
            asked = of_topic if event.queue_id is None else {event.queue_id: of_topic.get(event.queue_id, 0)}
            found[line] = dict(sorted(asked.items()))
        return found

    def _rows_of(self, topics: Collection[str]) -> pa.Table:
        """The messages of some topics, with those that the night will read, as QUEUE_COLUMNS of commitlog."""
        where = [one_of("topic", topics)]
        rows = self.changes.rows(COMMITLOG, QUEUE_COLUMNS, where)
        if self.new.plan is None:
            return rows
        new = self._new(NightPlan((), (), (), ()), {})
        storage = self.changes.warehouse.log(COMMITLOG).storage
        paths = [file.path for file in new.result.files[COMMITLOG.name]]
        rows = pa.concat_tables([rows, read_rows(COMMITLOG, storage, paths, QUEUE_COLUMNS, where)])
        self._tasks.discard(new)
        return rows

    def _renewals(self, new: Part) -> dict[str, list[QueueRenewal]]:
        """The queues that began again in the night. It is known when the new messages have been read."""

        def places(topic: str, queue_offsets: Collection[int]) -> dict[Key, int]:
            where = [one_of("topic", [topic]), one_of("queue_offset", queue_offsets)]
            names = ["queue_id", "queue_offset", "commitlog_offset"]
            return greatest(self.changes.rows(CONSUMEQUEUE, names, where), names[:2], names[2])

        return find_renewals(new.result.queues, self.state.topics, places, self.offsets.log_start)

    def _add_progress(self, rows: ProgressRows) -> None:
        self.changes.add_rows(QUEUE_PROGRESS, [rows.progress])
        if Step.DELIVER in self.steps:
            self.changes.add_rows(CONSUMER_OFFSETS, rows.offsets)
            self.changes.add_rows(DELIVERY_STATS, rows.stats)
        elif Step.INGEST in self.steps:
            committed = committed_rows(self.state.topics, self.offsets, self.as_of, self.changes.run)
            self.changes.add_rows(CONSUMER_OFFSETS, committed)
        # A redo has removed them, even if this run delivers nothing.
        topics = rows.topics if Step.DELIVER in self.steps else self.state.topics
        self.changes.replace_rows(CURRENT_OFFSETS, current_offset_rows(topics, self.changes.run))

    def _mend(self) -> TaskResult:
        """Stores messages again whose stored body was damaged and is not any more."""
        mended = self._tasks.read_again(self.new.plan.mended if self.new.plan is not None else (), (COMMITLOG,), {})
        self._tasks.add_files(mended)
        return mended

    def _new(self, plan: NightPlan, instants: Mapping[str, Int64s]) -> Part:
        windows, uncertain_changes = by_topic([*plan.online, *plan.backlog]), by_topic(plan.uncertain_changes)
        filter_data = filter_data_of_night(self.history, self.broker, self.state.as_of)
        return self._tasks.make_entries(self._read_new, windows, uncertain_changes, filter_data, instants)

    def _read_new(self, topics: Mapping[str, TopicWork]) -> TaskResult:
        total = self._read_stored(topics, begin=self.state.filtered_to)
        if self.new.plan is not None:
            read = self._tasks.reader(self.new.plan, self._tables_of_log, topics)
            for result in read_ranges(self.new.plan, read, self.session):
                total.add(result.result)
                self._settled = result.settled
        return total

    def _late(self, plan: NightPlan, instants: Mapping[str, Int64s]) -> Part | None:
        """Filters messages that earlier nights could not read, as those nights would have filtered them."""
        repaired = self.new.repaired
        stored = self._stored(end=self.state.filtered_to)
        if not repaired and stored is None:
            return None
        windows: list[PullWindow] = []
        if Step.DELIVER in self.steps:
            first = min([*(part.start for part in repaired), *(stored or ())])
            windows += late_windows(first, self.state, self._events, plan, self.expressions, self.changes)
        filter_data = filter_data_in_force(self.history, self.broker)
        late = self._tasks.make_entries(self._read_late, by_topic(windows), {}, filter_data, instants)
        topics = {topic for topic, _ in late.result.queues}
        rows = late_window_rows((window for window in windows if window.topic in topics), self.changes.run)
        self.changes.add_rows(PULL_WINDOWS, [rows])
        return self._tasks.add(late)

    def _read_late(self, topics: Mapping[str, TopicWork]) -> TaskResult:
        total = self._read_stored(topics, end=self.state.filtered_to)
        total.add(self._tasks.read_again(self.new.repaired, self._tables_of_log, topics))
        return total

    @property
    def _tables_of_log(self) -> Sequence[Table]:
        """The tables that are written while the log is read."""
        return WRITTEN_BY_TASKS if Step.DISPATCH in self.steps else (COMMITLOG, QUARANTINE)

    def _stored(self, begin: int = 0, end: int = FOREVER) -> PhysicalRange | None:
        """Where, between two physical offsets, this run makes the entries of stored messages."""
        if self.new.stored is None or not self.steps & {Step.DISPATCH, Step.DELIVER}:
            return None
        first, last = max(begin, self.new.stored[0]), min(end, self.new.stored[1])
        return (first, last) if first < last else None

    def _read_stored(self, topics: Mapping[str, TopicWork], begin: int = 0, end: int = FOREVER) -> TaskResult:
        stored = self._stored(begin, end)
        if stored is None:
            return TaskResult()
        ranges = stored_ranges(self.changes.files, stored)
        return self._tasks.filter_stored(ranges, (CONSUMEQUEUE, DELIVERY_BLOCKS), topics)

    def _backlog(self, plan: NightPlan) -> Part | None:
        """Filters messages of earlier nights for groups that pull them only now."""
        first_run = first_run_of_backlog(plan, self.state)
        if first_run is None:
            return None
        windows = by_topic(plan.backlog)
        as_of = self.state.as_of
        uncertain_changes = {
            topic: [change for change in items if as_of is not None and change.stored_from <= as_of]
            for topic, items in by_topic(plan.uncertain_changes).items()
        }
        if self.hooks:
            files = files_that_may_hold(self.changes.files(CONSUMEQUEUE), [within("run", first_run)])
            return Part(windows, uncertain_changes, self._tasks.filter_hooked(files, windows, uncertain_changes))
        topics = works_by_topic(self.broker, windows, uncertain_changes)
        ranges = stored_ranges(self.changes.files, first_run=first_run)
        result = self._tasks.filter_stored(ranges, (DELIVERY_BLOCKS,), topics)
        self._tasks.add_files(result)
        return Part(windows, uncertain_changes, result)


def _new_queues(plan: NightPlan, new: Part) -> dict[str, set[int]]:
    """By topic, the queues with messages that the plan did not allocate to clients with different tags."""
    known = {topic: queue_ids for (_, topic), queue_ids in plan.allocated.items()}
    found: defaultdict[str, set[int]] = defaultdict(set)
    for topic, queue_id in new.result.queues:
        if queue_id not in known.get(topic, (queue_id,)):
            found[topic].add(queue_id)
    return dict(found)
