"""Runs one night: plans it, runs its tasks, and adds the rows of all tables to the run's changes.

A night begins from the state that earlier nights left (BrokerState), the subscription events up to its end, the offsets
in the snapshot, and what is new (NewMessages). Night.run does this in order:

1. ``_begin``: the history of subscriptions, the offsets that operators set by time, and which groups pop. ``_plan``:
   from these the pull windows of each group (:mod:`filtering.consumption.plan`).
2. ``_filter_new``: tasks read the new messages, store them, make their entries, and filter them with the windows of the
   plan (NightTasks, which runs :mod:`jobs.night.tasks`). The new entries may show that a queue began again at offset 0,
   or be in a queue that the plan did not know. Then the night is planned, and the messages are read, once more.
3. ``_backlog``: tasks filter stored messages of earlier nights for groups that pull them only now.
4. ``_tasks.add``: users' *filter hooks* are asked about new messages, on Spark. Steps 3 and 5 ask them about their own.
5. ``_late``: *late messages* are those that an earlier night could not read, because they were damaged or not yet in
   the log. They are filtered with the windows of their own night, and with the backlogs of later ones.
6. ``_pop``: a group that pops has no windows while it pops: the broker wrote down what it handed out, and the
   deliveries follow from that (:mod:`jobs.night.pops`). What it did not hand out, though it matches, was pulled
   meanwhile (:mod:`filtering.pops.passed_over`).
7. The windows go to pull_windows. What clients wrote of their own consumption goes to consumptions
   (:mod:`jobs.night.consumption_rows`), and decides what events leave uncertain (:mod:`jobs.night.traced_deliveries`).
8. The counts of all tasks, and what the groups have committed, give the progress of each group: rows of
   consumer_offsets, delivery_stats, queue_progress and current_offsets (:mod:`jobs.night.rows`).

A repeated night is the same, with stored messages as the new ones. With ``steps``, only a part of this is done: without
*deliver*, the plan is empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumption.broadcasting import broadcasting_clients
from filtering.consumption.offsets import BrokerOffsets, QueueRestart
from filtering.consumption.plan import NOTHING_PLANNED, NightPlan, plan_night
from filtering.consumption.queues import QueueNight, find_restarts, queue_nights
from filtering.delivery.entries import Int64s, MultiDispatch, MultiQueue, Queue
from filtering.delivery.message_filter import NightFilters
from filtering.delivery.pull_window import (
    NO_END,
    FilterDataInForce,
    PullWindow,
    Reason,
    UncertainRange,
    filter_data_in_force,
)
from filtering.frozen import frozen
from filtering.names import is_lmq
from filtering.pops.handed_out import PopOutcomes
from filtering.pops.modes import PopGroups, PopModes, Pops
from filtering.pops.passed_over import PassedOver, uncertain_pulls, unpopped
from filtering.sql92 import Expressions
from filtering.subscriptions.events import GroupTopic, SubscriptionEvent, event_line, with_offsets
from filtering.subscriptions.history import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, DAY
from jobs.night import ALL_STEPS, Step
from jobs.night.commit import Changes
from jobs.night.consumption_rows import add_consumptions
from jobs.night.inputs import FilterHook, check_groups, hooks_by_group
from jobs.night.log import LogPlan, NewMessages, read_ranges
from jobs.night.past import QUEUE_COLUMNS, BrokerState, StoredQueues, late_windows, with_lmqs
from jobs.night.pops import (
    NO_POP_COUNTS,
    RECORD,
    NightPops,
    PopCounts,
    add_planned_pops,
    by_kind,
    popped_times,
    pulls_between_pops,
    read_by_pops,
    read_records,
)
from jobs.night.rows import (
    FilteredPart,
    ProgressRows,
    committed_rows,
    current_offset_rows,
    progress_rows,
)
from jobs.night.tasks import (
    WRITTEN_BY_TASKS,
    RangeResult,
    TaskResult,
    TopicWork,
    Work,
    filter_stored,
    make_lmq_entries,
    read_range,
    works_by_topic,
)
from jobs.night.traced_deliveries import CountChange, TracedDeliveries
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import DataFile, StoredFile, Table
from schemas.delta.table_rows import (
    Key,
    Where,
    files_that_may_hold,
    filtered,
    greatest,
    one_of,
    read_rows,
    within,
)
from schemas.messages.stored_messages import PhysicalRange, StoredRange, stored_ranges
from schemas.pull_windows import PULL_WINDOWS, late_window_rows, window_rows
from schemas.rocketmq_store.segments import LogRange
from schemas.run_ledger import first_beyond
from schemas.spark_tasks import Session
from schemas.tables import (
    CONSUMEQUEUE,
    CONSUMER_OFFSETS,
    CONSUMPTIONS,
    CURRENT_OFFSETS,
    DELIVERY_STATS,
    POP_RECORDS,
    POPS,
    QUARANTINE,
    QUEUE_PROGRESS,
)

# The tasks. Their files become part of the changes of the night.


Windows = Mapping[str, Sequence[PullWindow]]
UncertainRanges = Mapping[str, Sequence[UncertainRange]]


@frozen
class NightTasks:
    """Runs the tasks of one night. Windows, filter changes, filter data and instants are by topic."""

    broker: BrokerConfig
    changes: Changes
    session: Session
    hooks: Sequence[FilterHook]
    messages: NewMessages
    traces: list[DataFile] = field(default_factory=list)
    """The files of consumptions, whose rows still lack the messages that they mean."""

    def works(
        self,
        windows: Windows,
        uncertain_ranges: UncertainRanges,
        filter_data: Mapping[str, Sequence[FilterDataInForce]],
        instants: Mapping[str, Int64s],
    ) -> Mapping[str, TopicWork]:
        """What tasks do with the new messages of each topic. With hooks, they only make entries (see :meth:`add`)."""
        windows_now, uncertain_ranges_now = ({}, {}) if self.hooks else (windows, uncertain_ranges)
        return works_by_topic(self.broker, windows_now, uncertain_ranges_now, filter_data, instants)

    def add(self, part: FilteredPart) -> FilteredPart:
        """Adds the files of new entries. Hooks are asked after that."""
        result = part.result
        self.add_files(result)
        if not self.hooks:
            return part
        paths = {file.path for file in result.files[CONSUMEQUEUE.name]}
        new = [file for file in self.changes.files(CONSUMEQUEUE) if file.path in paths]
        delivered = self.filter_hooked(new, part.windows, part.uncertain_ranges)
        delivered.queues = result.queues
        delivered.damaged_bodies = result.damaged_bodies
        delivered.in_lmqs = result.in_lmqs
        delivered.workers |= result.workers
        return replace(part, result=delivered)

    def dispatch_to_lmqs(
        self,
        new: Sequence[DataFile],
        stored: PhysicalRange | None,
        topics: Mapping[str, TopicWork],
        dispatch: MultiDispatch,
    ) -> TaskResult:
        """Makes the entries of messages in LMQs, and filters them, in this process: few brokers have any.

        ``new``: the files of commitlog with new messages. ``stored``: where stored messages are that have none yet.
        """
        work = self.work((CONSUMEQUEUE, DELIVERY_BLOCKS), topics)
        files = [StoredFile.from_data_file(file, None) for file in new]
        paths = [file.path for file in sorted(files, key=lambda file: file.least["commitlog_offset"])]
        ranges = stored_ranges(self.changes.files, stored) if stored is not None else []
        return make_lmq_entries(ranges, paths, self.changes.warehouse, work, dispatch, self.broker)

    def discard(self, part: FilteredPart) -> None:
        """Deletes the files of new entries that are made again."""
        for name, files in part.result.files.items():
            table = next(table for table in WRITTEN_BY_TASKS if table.name == name)
            file_system = self.changes.warehouse.log(table).storage.file_system
            for file in files:
                file_system.delete_file(file.path)

    def filter_hooked(
        self, files: Sequence[StoredFile], windows: Windows, uncertain_ranges: UncertainRanges
    ) -> TaskResult:
        """Filters the entries of some files of consumequeue with hooks."""
        from jobs.night.hooked_task import filter_hooked, hooked_entries

        if not files:
            return TaskResult()
        topics = works_by_topic(self.broker, windows, uncertain_ranges, hooks=hooks_by_group(self.hooks))
        entries = hooked_entries(self.session(), self.changes, files, self.hooks)
        result = filter_hooked(entries, self.work((DELIVERY_BLOCKS,), topics))
        self.add_files(result)
        return result

    def filter_stored(
        self, ranges: Sequence[StoredRange], tables: Iterable[Table], topics: Mapping[str, TopicWork]
    ) -> TaskResult:
        """Filters stored messages, and writes files of ``tables``."""
        return filter_stored(ranges, self.changes.warehouse, self.work(tables, topics), self.session)

    def reader(
        self, plan: LogPlan, tables: Iterable[Table], topics: Mapping[str, TopicWork]
    ) -> Callable[[LogRange], RangeResult]:
        """A function that reads a range of the log, and writes files of ``tables``."""
        work = self.work(tables, topics)
        return partial(read_range, store=plan.log.store, work=work, bodies=self.messages.bodies)

    def read_again(
        self, parts: Iterable[LogRange], tables: Iterable[Table], topics: Mapping[str, TopicWork]
    ) -> TaskResult:
        """Reads parts of the log in this process: few messages that an earlier night could not read."""
        total = TaskResult()
        if self.messages.plan is not None:
            read = self.reader(self.messages.plan, tables, topics)
            for part in parts:
                total.add(read(part).result)
        return total

    def work(self, tables: Iterable[Table], topics: Mapping[str, TopicWork]) -> Work:
        folders = {table.name: self.changes.warehouse.log(table).storage for table in tables}
        return Work(self.changes.run, folders, topics, self.broker.delay_levels)

    def add_files(self, result: TaskResult) -> None:
        """Adds the files that tasks wrote to the night's changes."""
        self.traces.extend(result.files[CONSUMPTIONS.name])
        for table in WRITTEN_BY_TASKS:
            if table is not CONSUMPTIONS:
                self.changes.add_files(table, result.files[table.name])


# The plan, by topic.


TopicItem = TypeVar("TopicItem", PullWindow, UncertainRange)
CLOCK_SLACK = DAY
"""Milliseconds by which messages may be older than those of the night before: clocks are set back."""


def filter_data_of_night(
    history: Sequence[SubscriptionRow], broker: BrokerConfig, as_of: int | None
) -> dict[str, list[FilterDataInForce]]:
    """By topic, the filter data in force after ``as_of`` (ms). The oldest one applies to older messages, too."""
    oldest = BEGINNING if as_of is None else as_of - CLOCK_SLACK
    filter_data: defaultdict[str, list[FilterDataInForce]] = defaultdict(list)
    for topic, items in filter_data_in_force(history, broker).items():
        for data in items:
            if data.valid_to > oldest:
                valid_from = BEGINNING if as_of is not None and data.valid_from <= oldest else data.valid_from
                filter_data[topic].append(replace(data, valid_from=valid_from))
    return filter_data


def by_topic(items: Iterable[TopicItem]) -> dict[str, list[TopicItem]]:
    """The items of each topic, in order."""
    grouped: defaultdict[str, list[TopicItem]] = defaultdict(list)
    for item in items:
        grouped[item.topic].append(item)
    return dict(grouped)


def first_run_of_backlog(plan: NightPlan, state: BrokerState) -> str | None:
    """The first run whose stored messages are filtered again; None if there is none."""
    runs = []
    still_there = state.nights[first_beyond(state.nights, state.offsets.log_start or 0) :]
    deleted = [
        change for change in plan.uncertain_ranges if change.reason in (Reason.DELETED_TONIGHT, Reason.BEGAN_EARLIER)
    ]
    parts: list[PullWindow | UncertainRange] = [*plan.backlog, *deleted]
    for part in parts:
        offsets = state.topics.get(part.topic)
        if offsets is None:
            continue
        for queue_id, end in zip(offsets.queue_ids, offsets.ends.tolist(), strict=True):
            low, high = part.offsets.get(queue_id, (0, 0) if part.only_listed else (0, NO_END))
            if low < min(end, high) and (run := state.first_run_with(part.topic, queue_id, low)):
                if isinstance(part, PullWindow):
                    runs.append(run)
                elif still_there:
                    runs.append(max(run, still_there[0].run))
    if state.last is not None and any(change.stored_from <= (state.as_of or 0) for change in plan.uncertain_ranges):
        runs.append(state.last.run)
    return min(runs, default=None)


# The night.


@frozen
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
    messages: NewMessages
    changes: Changes
    expressions: Expressions
    session: Session
    as_of: int
    steps: frozenset[Step] = ALL_STEPS
    hooks: Sequence[FilterHook] = ()
    pop_groups: PopGroups = field(default_factory=PopGroups)
    pop_modes: PopModes = field(default_factory=PopModes)
    """When groups are known to pop. :meth:`run` adds what the record of the night says."""
    history: list[SubscriptionRow] = field(init=False)
    resets_by_time: dict[str, dict[int, int]] = field(init=False)
    """By the line of the event, the offsets that an offset reset by time sets, by queue id."""
    multi_queues: dict[Queue, MultiQueue] = field(init=False, default_factory=dict)
    """How far LMQs came whose entries are not at the offsets that messages note."""
    _states: Mapping[GroupTopic, Sequence[SubscriptionRow]] = field(init=False)
    """The history, by group and topic."""
    _events: Sequence[SubscriptionEvent] = field(init=False)
    _tasks: NightTasks = field(init=False)
    _settled: int | None = field(init=False, default=None)
    _pops: Pops = field(init=False)
    """When groups pop."""
    _checkpoints: pa.Table = field(init=False, default_factory=lambda: POP_RECORDS.file_schema.empty_table())
    """Those that the night read of the broker's record of pops."""
    _acknowledgements: pa.Table = field(init=False)

    def run(self) -> NightOutcome:
        """Filters the messages that groups can pull now, and adds the rows to ``changes``."""
        self._begin()
        plan = self._plan()
        recovered_bodies = self._read_recovered_bodies()
        plan, new = self._filter_new(plan)
        backlog = self._backlog(plan)  # before the files of new messages are added: it would filter them, too
        new = self._tasks.add(new)
        late = self._late(plan)
        popped, passed_over = self._pop()
        pulled = self._pulled_between_pops(passed_over)
        if pulled is not None:
            plan = replace(
                plan,
                backlog=[*plan.backlog, *chain(*pulled.windows.values())],
                uncertain_ranges=[*plan.uncertain_ranges, *chain(*pulled.uncertain_ranges.values())],
            )
        self.changes.add_rows(PULL_WINDOWS, [window_rows(plan, self.changes.run)])
        self._add_consumptions()
        traced = self._decide_by_traces()
        self._add_planned_pops()
        parts = [part for part in (new, backlog, late, pulled) if part is not None]
        queues = self._queue_nights(plan, new, late)
        rows = progress_rows(
            self.state.topics, plan.groups, self.offsets, parts, queues, plan.instants, self.as_of, self.changes.run,
            popped, traced,
        )  # fmt: skip
        self._add_progress(rows)
        total = TaskResult()
        for result in (recovered_bodies, *(part.result for part in parts)):
            total.add_totals(result)
        return NightOutcome(plan, rows, total, self._settled)

    def _begin(self) -> None:
        """What the plan depends on: the history of subscriptions, the offsets of resets, and which groups pop."""
        self.history = self.state.history(self.events, self.broker, self.expressions)
        self._states = states_by_key(self.history)
        self._tasks = NightTasks(self.broker, self.changes, self.session, self.hooks, self.messages)
        self.changes.create_missing((*WRITTEN_BY_TASKS, PULL_WINDOWS, POPS))
        self.resets_by_time = self._offsets_of_resets()
        self._events = list(with_offsets(self.events, self.resets_by_time))
        self._pops = self._when_groups_pop(expects_record=not self.state.nights)

    def _plan(self) -> NightPlan:
        """Raises UsageError if a filter hook is of a group that is not known."""
        if Step.DELIVER not in self.steps:
            return NOTHING_PLANNED
        offsets = replace(self.offsets, taken_at=self.as_of)
        plan = plan_night(
            self.history, self._events, self.state.offsets, offsets, self.broker, self.state.config, self._pops,
            self.pop_groups,
        )  # fmt: skip
        check_groups(self.hooks, [group.key for group in plan.groups])
        return plan

    def _filter_new(self, plan: NightPlan) -> tuple[NightPlan, FilteredPart]:
        """Reads the new messages, and filters them by the plan. Returns both.

        Rare: they show that queues began again, or queues or groups that pop of which the plan did not know. What
        groups pull depends on these, so the night is planned, and the messages are read, once more.
        """
        new = self._read_and_filter(plan)
        restarts, new_queues = self._restarts(new), _new_queues(plan, new)
        starts_to_pop = self._note_pops(new)
        if not (restarts or new_queues or starts_to_pop):
            return plan, new
        self._tasks.discard(new)
        self.offsets = replace(self.offsets, restarts=restarts, new_queues=new_queues)
        plan = self._plan()
        return plan, self._read_and_filter(plan)

    def _read_and_filter(self, plan: NightPlan) -> FilteredPart:
        windows, uncertain_ranges = by_topic([*plan.online, *plan.backlog]), by_topic(plan.uncertain_ranges)
        filter_data = filter_data_of_night(self.history, self.broker, self.state.as_of)
        topics = self._tasks.works(windows, uncertain_ranges, filter_data, plan.instants)
        return FilteredPart(windows, uncertain_ranges, self._read_new(topics))

    def _when_groups_pop(self, expects_record: bool) -> Pops:
        """``expects_record``: no record was read yet, and there may be one."""
        pops = self.pop_modes.pops(self._states, self._events, self.pop_groups, self.broker, expects_record)
        return replace(pops, read=read_by_pops(self._checkpoints, pops.recorded, self._began))

    def _note_pops(self, new: FilteredPart) -> bool:
        """Notes the groups that popped in the night. Returns whether that is not what was known, or expected."""
        if Step.DELIVER not in self.steps:
            return False
        storage = self.changes.warehouse.log(POP_RECORDS).storage
        paths = [file.path for file in new.result.files[POP_RECORDS.name]]
        stored = [within("commitlog_offset", self.state.filtered_to, self._end)]
        read = read_rows(POP_RECORDS, storage, paths, RECORD, dictionaries=POP_RECORDS.dictionary_texts)
        records = pa.concat_tables([read, read_records(self.changes, stored)])
        self._checkpoints, self._acknowledgements = by_kind(records)
        popped = popped_times(filtered(self._checkpoints, [within("popped_at", self._began + 1)]))
        first_popped = {key: at for key, (at, _) in popped_times(self._checkpoints).items()}
        writes_down = self.pop_modes.with_pops(first_popped, self.pop_groups).are_written_down(self.broker)
        if popped or self.pop_modes.may_pop(self._events):
            night = self._began, self.as_of
            self.pop_modes = self.pop_modes.with_mode_changes(
                popped, self._states, self._events, self.pop_groups, night, writes_down
            )
        self.pop_modes = self.pop_modes.with_pops(first_popped, self.pop_groups)
        expected, self._pops = self._pops, self._when_groups_pop(expects_record=False)
        return self._pops != expected

    def _pop(self) -> tuple[PopCounts, Mapping[GroupTopic, PassedOver]]:
        """Writes what groups popped. Also returns what they passed over between two pops."""
        if Step.DELIVER not in self.steps or not self.pop_modes.are_written_down(self.broker):
            return NO_POP_COUNTS, {}
        pops = NightPops(
            self.state,
            self.changes,
            PopOutcomes(self._states, self._events, self._pops.recorded, self.pop_groups, self.expressions),
            (self._checkpoints, self._acknowledgements),
            self._end,
            self.offsets.committed,
            self.messages.recovered_ranges,
        )
        counts = replace(pops.run(), popping=self._pops.recorded.keys())
        return counts, pops.passed_over

    def _pulled_between_pops(self, passed_over: Mapping[GroupTopic, PassedOver]) -> FilteredPart | None:
        """Filters what pops passed over though it matches: the group was switched to pulls, and back, meanwhile.

        An operator may also have moved its offset. So this is uncertain.
        """
        filters = NightFilters(self.history, self.broker, self.pop_groups.most_attempts)
        candidates = unpopped(passed_over, self._states, filters, self.broker)
        if not candidates:
            return None
        offsets = np.concatenate([each.commitlog_offset for each in chain(*candidates.values())])
        ranges = stored_ranges(self.changes.files, (int(offsets.min()), int(offsets.max()) + 1))
        windows = pulls_between_pops(candidates, self.broker.bloom_filter.m, ranges, self.changes)
        if not windows:
            return None
        uncertain = {topic: uncertain_pulls(own) for topic, own in windows.items()}
        topics = works_by_topic(self.broker, windows, uncertain)
        result = self._tasks.filter_stored(ranges, (DELIVERY_BLOCKS,), topics)
        self._tasks.add_files(result)
        return FilteredPart(windows, uncertain, result)

    def _add_planned_pops(self) -> None:
        """Writes what groups popped that the broker did not write down."""
        if Step.DELIVER in self.steps:
            add_planned_pops(self._pops.planned, self.changes)

    @property
    def _began(self) -> int:
        """When the night before ended, ms."""
        return BEGINNING if self.state.as_of is None else self.state.as_of

    @property
    def _end(self) -> int:
        """The physical offset up to which the night filters messages."""
        if self.messages.plan is not None:
            return NO_END
        return self.messages.stored[1] if self.messages.stored is not None else self.state.filtered_to

    def _offsets_of_resets(self) -> dict[str, dict[int, int]]:
        """The offsets of resets by time: those that earlier nights found, and those of tonight."""
        offsets_by_event = dict(self.state.last.resets_by_time) if self.state.last is not None else {}
        by_time = {event_line(event): event for event in self.events if event.reset_to is not None}
        of_tonight = {line: event for line, event in by_time.items() if line not in offsets_by_event}
        if Step.DELIVER not in self.steps or not of_tonight:
            return offsets_by_event
        queues = StoredQueues(self._rows_of({event.topic or "" for event in of_tonight.values()}))
        for line, event in of_tonight.items():
            offsets = queues.offsets_by_time(event.topic or "", event.reset_to or 0, event.at, self.offsets.log_start)
            asked = offsets if event.queue_id is None else {event.queue_id: offsets.get(event.queue_id, 0)}
            offsets_by_event[line] = dict(sorted(asked.items()))
        return offsets_by_event

    def _rows_of(self, topics: Collection[str]) -> pa.Table:
        """The messages of some topics, with those that the night will read, as QUEUE_COLUMNS of commitlog."""
        where = [one_of("topic", topics)]
        in_lmqs = [one_of("topic", [topic for topic in topics if is_lmq(topic)])]
        rows = self.changes.rows(COMMITLOG, QUEUE_COLUMNS, where)
        rows = with_lmqs(rows, self.changes.rows(CONSUMEQUEUE, QUEUE_COLUMNS[:-1], in_lmqs))
        if self.messages.plan is None:
            return rows
        new = self._read_and_filter(NOTHING_PLANNED)

        def new_rows(table: Table, columns: Sequence[str], wanted: Where) -> pa.Table:
            paths = [file.path for file in new.result.files[table.name]]
            return read_rows(table, self.changes.warehouse.log(table).storage, paths, columns, wanted)

        rows = pa.concat_tables([rows, new_rows(COMMITLOG, QUEUE_COLUMNS, where)])
        rows = with_lmqs(rows, new_rows(CONSUMEQUEUE, QUEUE_COLUMNS[:-1], in_lmqs))
        self._tasks.discard(new)
        return rows

    def _restarts(self, new: FilteredPart) -> dict[str, list[QueueRestart]]:
        """The queues that began again in the night. It is known when the new messages have been read."""

        def physical_offsets(topic: str, queue_offsets: Collection[int]) -> dict[Key, int]:
            where = [one_of("topic", [topic]), one_of("queue_offset", queue_offsets)]
            names = ["queue_id", "queue_offset", "commitlog_offset"]
            return greatest(self.changes.rows(CONSUMEQUEUE, names, where), names[:2], names[2])

        return find_restarts(new.result.queues, self.state.topics, physical_offsets, self.offsets.log_start)

    def _queue_nights(
        self, plan: NightPlan, new: FilteredPart, late: FilteredPart | None
    ) -> dict[str, dict[int, QueueNight]]:
        """The progress of each queue, by topic and queue id."""
        late_queues = late.result.queues if late is not None else {}
        begins = {topic: known.begins_by_queue for topic, known in self.state.topics.items()}
        return queue_nights(new.result.queues, late_queues, begins, self.offsets.restarts, plan.instants)

    def _add_progress(self, rows: ProgressRows) -> None:
        self.changes.add_rows(QUEUE_PROGRESS, [rows.progress])
        if Step.DELIVER in self.steps:
            self.changes.add_rows(CONSUMER_OFFSETS, rows.offsets)
            self.changes.add_rows(DELIVERY_STATS, rows.stats)
        elif Step.INGEST in self.steps:
            committed = committed_rows(self.state.topics, self.offsets, self.as_of, self.changes.run)
            self.changes.add_rows(CONSUMER_OFFSETS, committed)
        # Repeating has removed them, even if this run delivers nothing.
        topics = rows.topics if Step.DELIVER in self.steps else self.state.topics
        self.changes.replace_rows(CURRENT_OFFSETS, current_offset_rows(topics, self.changes.run))

    def _add_consumptions(self) -> None:
        """Adds what traces say of messages that the broker's log had at the last night, or got since."""
        subscribed = {(row.consumer_group, row.topic) for row in self.history}
        log_start = self.state.last.log_start if self.state.last is not None else None
        add_consumptions(self._tasks.traces, self.changes, subscribed, log_start or 0)

    def _decide_by_traces(self) -> Mapping[str, Sequence[CountChange]]:
        """Lets traces decide what is uncertain. Returns by topic how that changes the counts."""
        if Step.DELIVER not in self.steps:
            return {}
        popping = {group for group, _ in self._pops.recorded}
        broadcasting = broadcasting_clients(self._events).keys()
        return TracedDeliveries(self.state, self.changes, self._end, self.as_of, popping, broadcasting).run()

    def _read_recovered_bodies(self) -> TaskResult:
        """Stores messages again whose stored body was damaged and is not any more."""
        parts = self.messages.plan.recovered_bodies if self.messages.plan is not None else ()
        recovered_bodies = self._tasks.read_again(parts, (COMMITLOG, POP_RECORDS, QUARANTINE, CONSUMPTIONS), {})
        self._tasks.add_files(recovered_bodies)
        return recovered_bodies

    def _read_new(self, topics: Mapping[str, TopicWork]) -> TaskResult:
        begin = self.state.filtered_to
        total = self._make_entries(topics, begin=begin)
        if self.messages.plan is not None:
            read = self._tasks.reader(self.messages.plan, self._tables_of_log, topics)
            for result in read_ranges(self.messages.plan, read, self.session):
                total.add(result.result)
                self._settled = result.settled
        dispatch = self._multi_dispatch()
        self._add_lmq_entries(total, topics, dispatch, self._stored(begin=begin))
        self.multi_queues = {
            queue: each for queue, each in dispatch.queues.items() if is_lmq(queue[0]) and each.is_shifted
        }
        return total

    def _multi_dispatch(self) -> MultiDispatch:
        """Where LMQs are after the last night."""
        lmqs = {topic: known for topic, known in self.state.topics.items() if is_lmq(topic)}
        queues = {
            (topic, queue_id): MultiQueue.up_to(end)
            for topic, known in lmqs.items()
            for queue_id, end in known.ends_by_queue.items()
        }
        if self.state.nights:
            queues |= self.state.nights[-1].multi_queues
        on_disk = {(topic, queue_id) for topic, queue_ids in self.offsets.min_offsets.items() for queue_id in queue_ids}
        return MultiDispatch(self.broker.version, self.offsets.in_files, queues, on_disk)

    def _add_lmq_entries(
        self,
        result: TaskResult,
        topics: Mapping[str, TopicWork],
        dispatch: MultiDispatch,
        stored: PhysicalRange | None,
    ) -> None:
        """Adds the entries in LMQs of messages whose own entries are in ``result``. ``stored``: where some are."""
        if result.is_multi_dispatched:
            result.add(self._tasks.dispatch_to_lmqs(result.files[COMMITLOG.name], stored, topics, dispatch))

    def _late(self, plan: NightPlan) -> FilteredPart | None:
        """Filters messages that earlier nights could not read, as those nights would have filtered them."""
        recovered_ranges = self.messages.recovered_ranges
        stored = self._stored(end=self.state.filtered_to)
        if not recovered_ranges and stored is None:
            return None
        windows: list[PullWindow] = []
        if Step.DELIVER in self.steps:
            first = min([*(part.start for part in recovered_ranges), *(stored or ())])
            windows += late_windows(
                first,
                self.state,
                self._events,
                [*plan.online, *plan.backlog],
                self.expressions,
                self.changes,
                self.pop_groups,
            )
        filter_data = filter_data_in_force(self.history, self.broker)
        topic_windows = by_topic(windows)
        works = self._tasks.works(topic_windows, {}, filter_data, plan.instants)
        late = FilteredPart(topic_windows, {}, self._read_late(works))
        topics = {topic for topic, _ in late.result.queues}
        rows = late_window_rows((window for window in windows if window.topic in topics), self.changes.run)
        self.changes.add_rows(PULL_WINDOWS, [rows])
        return self._tasks.add(late)

    def _read_late(self, topics: Mapping[str, TopicWork]) -> TaskResult:
        total = self._make_entries(topics, end=self.state.filtered_to)
        total.add(self._tasks.read_again(self.messages.recovered_ranges, self._tables_of_log, topics))
        # The offsets that these messages note are where the later ones left room for them.
        dispatch = replace(self._multi_dispatch(), queues={})
        self._add_lmq_entries(total, topics, dispatch, self._stored(end=self.state.filtered_to))
        return total

    @property
    def _tables_of_log(self) -> Sequence[Table]:
        """The tables that are written while the log is read."""
        return WRITTEN_BY_TASKS if Step.DISPATCH in self.steps else (COMMITLOG, POP_RECORDS, QUARANTINE, CONSUMPTIONS)

    def _stored(self, begin: int = 0, end: int = NO_END) -> PhysicalRange | None:
        """Where, between two physical offsets, this run makes the entries of stored messages."""
        if self.messages.stored is None or not self.steps & {Step.DISPATCH, Step.DELIVER}:
            return None
        first, last = max(begin, self.messages.stored[0]), min(end, self.messages.stored[1])
        return (first, last) if first < last else None

    def _make_entries(self, topics: Mapping[str, TopicWork], begin: int = 0, end: int = NO_END) -> TaskResult:
        stored = self._stored(begin, end)
        if stored is None:
            return TaskResult()
        ranges = stored_ranges(self.changes.files, stored)
        return self._tasks.filter_stored(ranges, (CONSUMEQUEUE, DELIVERY_BLOCKS), topics)

    def _backlog(self, plan: NightPlan) -> FilteredPart | None:
        """Filters messages of earlier nights for groups that pull them only now."""
        first_run = first_run_of_backlog(plan, self.state)
        if first_run is None:
            return None
        windows = by_topic(plan.backlog)
        as_of = self.state.as_of
        uncertain_ranges = {
            topic: [change for change in items if as_of is not None and change.stored_from <= as_of]
            for topic, items in by_topic(plan.uncertain_ranges).items()
        }
        if self.hooks:
            files = files_that_may_hold(self.changes.files(CONSUMEQUEUE), [within("run", first_run)])
            return FilteredPart(windows, uncertain_ranges, self._tasks.filter_hooked(files, windows, uncertain_ranges))
        topics = works_by_topic(self.broker, windows, uncertain_ranges)
        ranges = stored_ranges(self.changes.files, first_run=first_run)
        result = self._tasks.filter_stored(ranges, (DELIVERY_BLOCKS,), topics)
        self._tasks.add_files(result)
        return FilteredPart(windows, uncertain_ranges, result)


def _new_queues(plan: NightPlan, new: FilteredPart) -> dict[str, set[int]]:
    """By topic, the queues with messages that the plan did not allocate to clients with different tags."""
    known = {topic: queue_ids for (_, topic), queue_ids in plan.allocated.items()}
    new_queues: defaultdict[str, set[int]] = defaultdict(set)
    for topic, queue_id in new.result.queues:
        if queue_id not in known.get(topic, (queue_id,)):
            new_queues[topic].add(queue_id)
    return dict(new_queues)
