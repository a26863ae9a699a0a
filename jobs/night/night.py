"""One night of one broker: from what it begins with to the rows of all tables.

    inputs -> plan -> tasks -> rows -> commit

A Night has what it begins with: the state that earlier nights left (BrokerState), the subscription events up to its
end, the offsets in the snapshot, and what is new (MessagesToRead). It does not change. :meth:`Night.run` does the rest.
Each step takes what the steps before it returned:

1. ``_plan_inputs``: the offsets that operators set by time, and when groups pop (PlanInputs). ``_plan``: from these and
   the history of subscriptions, the pull windows of each group (:mod:`filtering.consumption.plan`).
2. ``_read_recovered_bodies``: messages whose body was damaged, and is not any more, are stored again. ``_filter_new``:
   tasks read the new messages, store them, make their entries, and filter them with the windows of the plan
   (:mod:`jobs.night.tasks`). The new entries may show that a queue began again at offset 0, or be in a queue that the
   plan did not know. Then the night is planned, and the messages are read, once more.
3. ``_filter_backlog``: tasks filter stored messages of earlier nights for groups that pull them only now.
4. ``_add``: users' *filter hooks* are asked about new messages, on Spark. Steps 3 and 5 ask them about their own.
5. ``_filter_late``: *late messages* are those that an earlier night could not read, because they were damaged or not
   yet in the log. They are filtered with the windows of their own night, and with the backlogs of later ones.
6. ``_add_pops``: a group that pops has no windows while it pops: the broker wrote down what it handed out, and the
   deliveries follow from that (:mod:`jobs.night.pops`). ``_filter_passed_over``: what it did not hand out, though it
   matches, was pulled meanwhile (:mod:`filtering.pops.passed_over`).
7. The windows go to pull_windows. What clients wrote of their own consumption goes to consumptions
   (:mod:`jobs.night.consumption_rows`), and decides what events leave uncertain (:mod:`jobs.night.traced_deliveries`).
   ``add_planned_pops``: where the broker wrote no pop down, pops follow from the deliveries.
8. ``_add_progress``: the counts of all tasks, and what the groups have committed, give the progress of each group: rows
   of consumer_offsets, delivery_stats, queue_progress and current_offsets (:mod:`jobs.night.rows`).

All rows and files are in ``changes``; :mod:`jobs.night.run` commits them. A repeated night is the same, with stored
messages as the new ones. With ``steps``, only a part of this is done: without *deliver*, the plan is empty.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property, partial
from itertools import chain

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
from jobs.night.log import LogPlan, MessagesToRead, read_ranges
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
    TABLES_OF_LOG,
    WRITTEN_BY_TASKS,
    RangeResult,
    TaskResult,
    TopicWindows,
    TopicWork,
    Work,
    filter_entries,
    make_entries,
    make_lmq_entries,
    read_range,
    run_on_stored,
    works_by_topic,
)
from jobs.night.traced_deliveries import CountChange, TracedDeliveries
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import StoredFile, Table
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
from schemas.run_ledger import ASSUMED_QUEUES, MULTI_QUEUES, POP_MODES, RESETS_BY_TIME, first_beyond
from schemas.spark_tasks import Session
from schemas.tables import (
    CONSUMEQUEUE,
    CONSUMER_OFFSETS,
    CONSUMPTIONS,
    CURRENT_OFFSETS,
    DELIVERY_STATS,
    POP_RECORDS,
    POPS,
    QUEUE_PROGRESS,
)


@frozen(eq=False)
class PlanInputs:
    """What the plan of a night follows from, beside what the night begins with.

    ``events``: all of them, with the offsets that resets by time set. ``resets_by_time``: these offsets by queue id, by
    the line of the event. ``offsets``: those in the snapshot, and when the new messages have been read, also which
    queues began again, or are new. ``pop_modes``: when groups are known to pop. ``pops``: when they do, by that.
    ``checkpoints`` and ``acknowledgements``: what the night read of the broker's record of pops.
    """

    events: Sequence[SubscriptionEvent]
    resets_by_time: Mapping[str, Mapping[int, int]]
    offsets: BrokerOffsets
    pop_modes: PopModes
    pops: Pops
    checkpoints: pa.Table
    acknowledgements: pa.Table


@frozen(eq=False)
class NewPart(FilteredPart):
    """The new messages of a night.

    ``settled_to``: the physical offset from which the next night reads; None without a log. ``multi_queues``: how far
    LMQs came whose entries are not at the offsets that messages note.
    """

    settled_to: int | None
    multi_queues: Mapping[Queue, MultiQueue]


@frozen(eq=False)
class NightOutcome:
    """The result of a night. ``result``: the totals of all tasks.

    ``settled_to``: the physical offset from which the next night reads; None without a log. ``ledger_texts``: what
    later nights need that is in no other table, by the ledger's keys: where clients with different tags shared queues
    of an unknown number, the offsets of resets by time, how far LMQs came, and which groups pop.
    """

    plan: NightPlan
    rows: ProgressRows
    result: TaskResult
    settled_to: int | None
    ledger_texts: Mapping[str, str]


@frozen(eq=False)
class Night:
    """What a night begins with. ``events``: all subscription events up to its end, ``as_of`` (ms).

    ``offsets``: those in the snapshot. ``pop_groups``: what the configuration says of groups that pop. The plan has
    events and offsets of its own (PlanInputs).
    """

    broker: BrokerConfig
    state: BrokerState
    events: Sequence[SubscriptionEvent]
    offsets: BrokerOffsets
    messages: MessagesToRead
    pop_groups: PopGroups
    changes: Changes
    expressions: Expressions
    session: Session
    as_of: int
    steps: frozenset[Step] = ALL_STEPS
    hooks: Sequence[FilterHook] = ()

    def run(self) -> NightOutcome:
        """Filters the messages that groups can pull now, and adds the rows of all tables to ``changes``.

        Raises UsageError if a filter hook is of a group that is not known.
        """
        self.changes.create_missing((*WRITTEN_BY_TASKS, PULL_WINDOWS, POPS))
        inputs = self._plan_inputs()
        plan = self._plan(inputs)
        recovered_bodies = self._read_recovered_bodies()
        inputs, plan, new = self._filter_new(inputs, plan)
        backlog = self._filter_backlog(plan)  # before the files of new messages are added: it would filter them, too
        self._add(new)
        late = self._filter_late(inputs, plan)
        popped, passed_over = self._add_pops(inputs)
        pulled = self._filter_passed_over(passed_over)
        if pulled is not None:
            plan = replace(
                plan,
                backlog=[*plan.backlog, *chain(*pulled.filtered_by.windows.values())],
                uncertain_ranges=[*plan.uncertain_ranges, *chain(*pulled.filtered_by.uncertain_ranges.values())],
            )
        self.changes.add_rows(PULL_WINDOWS, [window_rows(plan, self.changes.run)])
        parts = [part for part in (new, backlog, late, pulled) if part is not None]
        results = [recovered_bodies, *(part.result for part in parts)]
        self._add_consumptions(results)
        traced = self._decide_by_traces(inputs)
        if self.delivers:
            add_planned_pops(inputs.pops.planned, self.changes)
        queues = self._queue_nights(inputs, plan, new, late)
        rows = self._add_progress(inputs, plan, parts, queues, popped, traced)
        total = TaskResult(damaged_bodies=self.messages.damaged_bodies)
        for result in results:
            total.add_totals(result)
        return NightOutcome(plan, rows, total, new.settled_to, self._ledger_texts(inputs, plan, new))

    @cached_property
    def history(self) -> list[SubscriptionRow]:
        """The history of subscriptions."""
        return self.state.history(self.events, self.broker, self.expressions)

    @cached_property
    def _states(self) -> Mapping[GroupTopic, Sequence[SubscriptionRow]]:
        """The history, by group and topic."""
        return states_by_key(self.history)

    @property
    def delivers(self) -> bool:
        """Whether the night decides deliveries."""
        return Step.DELIVER in self.steps

    @property
    def _as_of_before(self) -> int:
        """The end of the night before (ms); BEGINNING if there was none."""
        return BEGINNING if self.state.as_of is None else self.state.as_of

    @property
    def _filters_to(self) -> int:
        """The physical offset up to which the night filters messages."""
        if self.messages.log_plan is not None:
            return NO_END
        return self.messages.stored_range[1] if self.messages.stored_range is not None else self.state.filtered_to

    # The plan, and what it follows from.

    def _plan_inputs(self) -> PlanInputs:
        """What is known before the new messages are read."""
        resets_by_time = self._offsets_of_resets()
        events = list(with_offsets(self.events, resets_by_time))
        pop_modes = self.state.pop_modes.with_configuration(self.pop_groups, self.as_of)
        checkpoints, acknowledgements = by_kind(POP_RECORDS.file_schema.empty_table().select(RECORD))
        pops = self._when_groups_pop(pop_modes, events, checkpoints, expects_record=not self.state.nights)
        offsets = replace(self.offsets, taken_at=self.as_of)
        return PlanInputs(events, resets_by_time, offsets, pop_modes, pops, checkpoints, acknowledgements)

    def _plan(self, inputs: PlanInputs) -> NightPlan:
        if not self.delivers:
            return NOTHING_PLANNED
        plan = plan_night(
            self.history, inputs.events, self.state.offsets, inputs.offsets, self.broker, self.state.config,
            inputs.pops, self.pop_groups,
        )  # fmt: skip
        check_groups(self.hooks, [group.key for group in plan.groups])
        return plan

    def _filter_new(self, inputs: PlanInputs, plan: NightPlan) -> tuple[PlanInputs, NightPlan, NewPart]:
        """Reads the new messages, and filters them by the plan. Returns the inputs with what these messages show, the
        plan from these inputs, and the messages' NewPart.

        Rare: they show that queues began again, or queues or groups that pop of which the plan did not know. What
        groups pull depends on these, so the night is planned, and the messages are read, once more.
        """
        new = self._read_new(plan)
        restarts, new_queues = self._restarts(new), _new_queues(plan, new)
        offsets = replace(inputs.offsets, restarts=restarts, new_queues=new_queues)
        shown = self._with_record(replace(inputs, offsets=offsets), new)
        if not restarts and not new_queues and shown.pops == inputs.pops:
            return shown, plan, new
        self._discard(new)
        plan = self._plan(shown)
        return shown, plan, self._read_new(plan)

    def _restarts(self, new: FilteredPart) -> dict[str, list[QueueRestart]]:
        """The queues that began again in the night. It is known when the new messages have been read."""

        def physical_offsets(topic: str, queue_offsets: Collection[int]) -> dict[Key, int]:
            where = [one_of("topic", [topic]), one_of("queue_offset", queue_offsets)]
            names = ["queue_id", "queue_offset", "commitlog_offset"]
            return greatest(self.changes.rows(CONSUMEQUEUE, names, where), names[:2], names[2])

        return find_restarts(new.result.queues, self.state.topics, physical_offsets, self.offsets.log_start)

    def _with_record(self, inputs: PlanInputs, new: FilteredPart) -> PlanInputs:
        """The inputs with the record of pops that the new messages are in, and when groups popped according to it."""
        if not self.delivers:
            return inputs
        storage = self.changes.warehouse.log(POP_RECORDS).storage
        paths = [file.path for file in new.result.files[POP_RECORDS.name]]
        in_stored_log = [within("commitlog_offset", self.state.filtered_to, self._filters_to)]
        read = read_rows(POP_RECORDS, storage, paths, RECORD, dictionaries=POP_RECORDS.dictionary_texts)
        checkpoints, acknowledgements = by_kind(pa.concat_tables([read, read_records(self.changes, in_stored_log)]))
        popped = popped_times(filtered(checkpoints, [within("popped_at", self._as_of_before + 1)]))
        first_popped = {key: at for key, (at, _) in popped_times(checkpoints).items()}
        pop_modes = inputs.pop_modes
        if popped or pop_modes.may_pop(inputs.events):
            writes_down = pop_modes.with_pops(first_popped, self.pop_groups).are_written_down(self.broker)
            night = self._as_of_before, self.as_of
            pop_modes = pop_modes.with_mode_changes(
                popped, self._states, inputs.events, self.pop_groups, night, writes_down
            )
        pop_modes = pop_modes.with_pops(first_popped, self.pop_groups)
        pops = self._when_groups_pop(pop_modes, inputs.events, checkpoints, expects_record=False)
        return replace(
            inputs, pop_modes=pop_modes, pops=pops, checkpoints=checkpoints, acknowledgements=acknowledgements
        )

    def _when_groups_pop(
        self, pop_modes: PopModes, events: Sequence[SubscriptionEvent], checkpoints: pa.Table, expects_record: bool
    ) -> Pops:
        """``expects_record``: no record was read yet, and there may be one."""
        pops = pop_modes.pops(self._states, events, self.pop_groups, self.broker, expects_record)
        return replace(pops, offsets_at_mode_change=read_by_pops(checkpoints, pops.recorded, self._as_of_before))

    def _offsets_of_resets(self) -> dict[str, dict[int, int]]:
        """The offsets of resets by time: those that earlier nights found, and those of tonight."""
        offsets_by_event = dict(self.state.last.resets_by_time) if self.state.last is not None else {}
        by_time = {event_line(event): event for event in self.events if event.reset_to is not None}
        of_tonight = {line: event for line, event in by_time.items() if line not in offsets_by_event}
        if not self.delivers or not of_tonight:
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
        if self.messages.log_plan is None:
            return rows
        new = self._read_new(NOTHING_PLANNED)

        def new_rows(table: Table, columns: Sequence[str], wanted: Where) -> pa.Table:
            paths = [file.path for file in new.result.files[table.name]]
            return read_rows(table, self.changes.warehouse.log(table).storage, paths, columns, wanted)

        rows = pa.concat_tables([rows, new_rows(COMMITLOG, QUEUE_COLUMNS, where)])
        rows = with_lmqs(rows, new_rows(CONSUMEQUEUE, QUEUE_COLUMNS[:-1], in_lmqs))
        self._discard(new)
        return rows

    # Messages that tasks filter: new ones, those of earlier nights, and late ones.

    def _read_new(self, plan: NightPlan) -> NewPart:
        """Reads the new messages, and filters them with the windows of a plan. Their files are not added yet."""
        filtered_by = TopicWindows.of([*plan.online, *plan.backlog], plan.uncertain_ranges)
        filter_data = filter_data_of_night(self.history, self.broker, self.state.as_of)
        topics = self._works(filtered_by, filter_data, plan.instants)
        stored_range = self._stored_range(begin=self.state.filtered_to)
        total = self._make_entries(stored_range, topics)
        settled_to: int | None = None
        if self.messages.log_plan is not None:
            read = self._reader(self.messages.log_plan, topics, self._tables_of_log)
            for part in read_ranges(self.messages.log_plan, read, self.session):
                total.add(part.result)
                settled_to = part.settled_to
        dispatch = self._multi_dispatch()
        self._add_lmq_entries(total, topics, dispatch, stored_range)
        multi_queues = {queue: each for queue, each in dispatch.queues.items() if is_lmq(queue[0]) and each.is_shifted}
        return NewPart(filtered_by, total, settled_to, multi_queues)

    def _read_recovered_bodies(self) -> TaskResult:
        """Stores messages again whose stored body was damaged and is not any more."""
        parts = self.messages.log_plan.recovered_bodies if self.messages.log_plan is not None else ()
        recovered_bodies = self._read_again(parts, {}, TABLES_OF_LOG)
        self._add_files(recovered_bodies)
        return recovered_bodies

    def _filter_backlog(self, plan: NightPlan) -> FilteredPart | None:
        """Filters messages of earlier nights for groups that pull them only now."""
        first_run = first_run_of_backlog(plan, self.state)
        if first_run is None:
            return None
        as_of = self.state.as_of
        earlier = [each for each in plan.uncertain_ranges if as_of is not None and each.stored_from <= as_of]
        filtered_by = TopicWindows.of(plan.backlog, earlier)
        if self.hooks:
            files = files_that_may_hold(self.changes.files(CONSUMEQUEUE), [within("run", first_run)])
            return FilteredPart(filtered_by, self._filter_hooked(files, filtered_by))
        return self._filter_stored(filtered_by, stored_ranges(self.changes.files, first_run=first_run))

    def _filter_late(self, inputs: PlanInputs, plan: NightPlan) -> FilteredPart | None:
        """Filters messages that earlier nights could not read, as those nights would have filtered them."""
        recovered_ranges = self.messages.recovered_ranges
        stored_range = self._stored_range(end=self.state.filtered_to)
        if not recovered_ranges and stored_range is None:
            return None
        windows: list[PullWindow] = []
        if self.delivers:
            first = min([*(part.start for part in recovered_ranges), *(stored_range or ())])
            tonight = [*plan.online, *plan.backlog]
            windows += late_windows(
                first, self.state, inputs.events, tonight, self.expressions, self.changes, self.pop_groups
            )
        filtered_by = TopicWindows.of(windows)
        works = self._works(filtered_by, filter_data_in_force(self.history, self.broker), plan.instants)
        result = self._make_entries(stored_range, works)
        result.add(self._read_again(recovered_ranges, works, self._tables_of_log))
        # The offsets that these messages note are where the later ones left room for them.
        self._add_lmq_entries(result, works, replace(self._multi_dispatch(), queues={}), stored_range)
        late = FilteredPart(filtered_by, result)
        topics = {topic for topic, _ in result.queues}
        rows = late_window_rows((window for window in windows if window.topic in topics), self.changes.run)
        self.changes.add_rows(PULL_WINDOWS, [rows])
        self._add(late)
        return late

    def _add_pops(self, inputs: PlanInputs) -> tuple[PopCounts, Mapping[GroupTopic, PassedOver]]:
        """Adds what groups popped. Also returns what they passed over between two pops."""
        if not self.delivers or not inputs.pop_modes.are_written_down(self.broker):
            return NO_POP_COUNTS, {}
        recorded = inputs.pops.recorded
        pops = NightPops(
            self.state,
            self.changes,
            PopOutcomes(self._states, inputs.events, recorded, self.pop_groups, self.expressions),
            (inputs.checkpoints, inputs.acknowledgements),
            self._filters_to,
            self.offsets.committed,
            self.messages.recovered_ranges,
        )
        counts = replace(pops.run(), recorded=recorded.keys())
        return counts, pops.passed_over

    def _filter_passed_over(self, passed_over: Mapping[GroupTopic, PassedOver]) -> FilteredPart | None:
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
        uncertain_ranges = {topic: uncertain_pulls(own) for topic, own in windows.items()}
        return self._filter_stored(TopicWindows(windows, uncertain_ranges), ranges)

    # Tasks. What they wrote becomes part of the changes of the night.

    def _works(
        self,
        filtered_by: TopicWindows,
        filter_data: Mapping[str, Sequence[FilterDataInForce]],
        instants: Mapping[str, Int64s],
    ) -> Mapping[str, TopicWork]:
        """What tasks do with the new messages of each topic. With hooks, they only make entries (see :meth:`_add`)."""
        return works_by_topic(self.broker, TopicWindows() if self.hooks else filtered_by, filter_data, instants)

    def _work(self, topics: Mapping[str, TopicWork], tables: Iterable[Table]) -> Work:
        folders = {table.name: self.changes.warehouse.log(table).storage for table in tables}
        return Work(self.changes.run, folders, topics, self.broker.delay_levels)

    @property
    def _tables_of_log(self) -> Sequence[Table]:
        """The tables that are written while the log is read."""
        return WRITTEN_BY_TASKS if Step.DISPATCH in self.steps else TABLES_OF_LOG

    def _reader(
        self, log_plan: LogPlan, topics: Mapping[str, TopicWork], tables: Iterable[Table]
    ) -> Callable[[LogRange], RangeResult]:
        """A function that reads a range of the log, and writes files of ``tables``."""
        return partial(
            read_range, store=log_plan.log.store, work=self._work(topics, tables), bodies=self.messages.bodies
        )

    def _read_again(
        self, parts: Iterable[LogRange], topics: Mapping[str, TopicWork], tables: Iterable[Table]
    ) -> TaskResult:
        """Reads parts of the log in this process: few messages that an earlier night could not read."""
        total = TaskResult()
        if self.messages.log_plan is not None:
            read = self._reader(self.messages.log_plan, topics, tables)
            for part in parts:
                total.add(read(part).result)
        return total

    def _stored_range(self, begin: int = 0, end: int = NO_END) -> PhysicalRange | None:
        """Where, between two physical offsets, this run makes the entries of stored messages."""
        if self.messages.stored_range is None or not self.steps & {Step.DISPATCH, Step.DELIVER}:
            return None
        first, last = max(begin, self.messages.stored_range[0]), min(end, self.messages.stored_range[1])
        return (first, last) if first < last else None

    def _make_entries(self, stored_range: PhysicalRange | None, topics: Mapping[str, TopicWork]) -> TaskResult:
        """Makes the entries of stored messages, and filters them."""
        if stored_range is None:
            return TaskResult()
        work = self._work(topics, (CONSUMEQUEUE, DELIVERY_BLOCKS))
        ranges = stored_ranges(self.changes.files, stored_range)
        return run_on_stored(make_entries, ranges, self.changes.warehouse, work, self.session)

    def _filter_stored(self, filtered_by: TopicWindows, ranges: Sequence[StoredRange]) -> FilteredPart:
        """Filters stored messages that have entries."""
        work = self._work(works_by_topic(self.broker, filtered_by), (DELIVERY_BLOCKS,))
        result = run_on_stored(filter_entries, ranges, self.changes.warehouse, work, self.session)
        self._add_files(result)
        return FilteredPart(filtered_by, result)

    def _multi_dispatch(self) -> MultiDispatch:
        """Where LMQs are after the last night."""
        queues = {
            (topic, queue_id): MultiQueue.up_to(end)
            for topic, known in self.state.topics.items()
            if is_lmq(topic)
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
        stored_range: PhysicalRange | None,
    ) -> None:
        """Adds the entries in LMQs of messages whose own entries are in ``result``, and of those in ``stored_range``.

        They are made, and filtered, in this process: few brokers have any.
        """
        if not result.is_multi_dispatched:
            return
        new = [StoredFile.from_data_file(file, None) for file in result.files[COMMITLOG.name]]
        paths = [file.path for file in sorted(new, key=lambda file: file.least["commitlog_offset"])]
        ranges = stored_ranges(self.changes.files, stored_range) if stored_range is not None else []
        work = self._work(topics, (CONSUMEQUEUE, DELIVERY_BLOCKS))
        result.add(make_lmq_entries(ranges, paths, self.changes.warehouse, work, dispatch, self.broker))

    def _filter_hooked(self, files: Sequence[StoredFile], filtered_by: TopicWindows) -> TaskResult:
        """Filters the entries of some files of consumequeue with hooks."""
        from jobs.night.hooked_task import filter_hooked, hooked_entries

        if not files:
            return TaskResult()
        topics = works_by_topic(self.broker, filtered_by, hooks=hooks_by_group(self.hooks))
        entries = hooked_entries(self.session(), self.changes, files, self.hooks)
        result = filter_hooked(entries, self._work(topics, (DELIVERY_BLOCKS,)))
        self._add_files(result)
        return result

    def _add(self, part: FilteredPart) -> None:
        """Adds the files of new entries to the changes. Hooks are asked after that."""
        self._add_files(part.result)
        if self.hooks:
            paths = {file.path for file in part.result.files[CONSUMEQUEUE.name]}
            new = [file for file in self.changes.files(CONSUMEQUEUE) if file.path in paths]
            part.result.counts.clear()  # with hooks, the tasks had no windows to count for
            part.result.add(self._filter_hooked(new, part.filtered_by))

    def _add_files(self, result: TaskResult) -> None:
        for table in WRITTEN_BY_TASKS:
            if table is not CONSUMPTIONS:  # their rows still lack the messages that they mean
                self.changes.add_files(table, result.files[table.name])

    def _discard(self, part: FilteredPart) -> None:
        """Deletes the files of new entries that are made again."""
        for table in WRITTEN_BY_TASKS:
            file_system = self.changes.warehouse.log(table).storage.file_system
            for file in part.result.files[table.name]:
                file_system.delete_file(file.path)

    # The rows that follow from all of these.

    def _add_consumptions(self, results: Iterable[TaskResult]) -> None:
        """Adds what traces say of messages that the broker's log had at the last night, or got since."""
        files = [file for result in results for file in result.files[CONSUMPTIONS.name]]
        subscribed = {(row.consumer_group, row.topic) for row in self.history}
        log_start = self.state.last.log_start if self.state.last is not None else None
        add_consumptions(files, self.changes, subscribed, log_start or 0)

    def _decide_by_traces(self, inputs: PlanInputs) -> Mapping[str, Sequence[CountChange]]:
        """Lets traces decide what is uncertain. Returns by topic how that changes the counts."""
        if not self.delivers:
            return {}
        recorded = {group for group, _ in inputs.pops.recorded}
        broadcasting = broadcasting_clients(inputs.events).keys()
        return TracedDeliveries(
            self.state, self.changes, self._filters_to, self.as_of, self.offsets.log_start, recorded, broadcasting
        ).run()

    def _queue_nights(
        self, inputs: PlanInputs, plan: NightPlan, new: FilteredPart, late: FilteredPart | None
    ) -> dict[str, dict[int, QueueNight]]:
        """The progress of each queue, by topic and queue id."""
        late_queues = late.result.queues if late is not None else {}
        begins = {topic: known.begins_by_queue for topic, known in self.state.topics.items()}
        return queue_nights(new.result.queues, late_queues, begins, inputs.offsets.restarts, plan.instants)

    def _add_progress(
        self,
        inputs: PlanInputs,
        plan: NightPlan,
        parts: Sequence[FilteredPart],
        queues: Mapping[str, Mapping[int, QueueNight]],
        popped: PopCounts,
        traced: Mapping[str, Sequence[CountChange]],
    ) -> ProgressRows:
        """Adds the progress of queues and groups."""
        rows = progress_rows(
            self.state.topics, plan, inputs.offsets, parts, queues, self.as_of, self.changes.run, popped, traced
        )
        self.changes.add_rows(QUEUE_PROGRESS, [rows.progress])
        if self.delivers:
            self.changes.add_rows(CONSUMER_OFFSETS, rows.offsets)
            self.changes.add_rows(DELIVERY_STATS, rows.stats)
        elif Step.INGEST in self.steps:
            committed = committed_rows(self.state.topics, inputs.offsets, self.as_of, self.changes.run)
            self.changes.add_rows(CONSUMER_OFFSETS, committed)
        # Repeating has removed them, even if this run delivers nothing.
        topics = rows.topics if self.delivers else self.state.topics
        self.changes.replace_rows(CURRENT_OFFSETS, current_offset_rows(topics, self.changes.run))
        return rows

    def _ledger_texts(self, inputs: PlanInputs, plan: NightPlan, new: NewPart) -> dict[str, str]:
        before = self.state.last.assumed_queues if self.state.last is not None else {}
        assumed, multi_queues = sorted({**before, **plan.assumed}.items()), sorted(new.multi_queues.items())
        return {
            ASSUMED_QUEUES: json.dumps([(*key, queues) for key, queues in assumed]),
            RESETS_BY_TIME: json.dumps(inputs.resets_by_time),
            MULTI_QUEUES: json.dumps([(*key, *astuple(queue)) for key, queue in multi_queues]),
            POP_MODES: inputs.pop_modes.text,
        }


# The plan, by topic.


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
                valid_from = BEGINNING if data.valid_from <= oldest else data.valid_from
                filter_data[topic].append(replace(data, valid_from=valid_from))
    return filter_data


def first_run_of_backlog(plan: NightPlan, state: BrokerState) -> str | None:
    """The first run whose stored messages are filtered again; None if there is none."""
    runs = []
    still_there = state.nights[first_beyond(state.nights, state.offsets.log_start or 0) :]
    deleted = [each for each in plan.uncertain_ranges if each.reason in (Reason.DELETED_TONIGHT, Reason.BEGAN_EARLIER)]
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
    if state.last is not None and any(each.stored_from <= (state.as_of or 0) for each in plan.uncertain_ranges):
        runs.append(state.last.run)
    return min(runs, default=None)


def _new_queues(plan: NightPlan, new: FilteredPart) -> dict[str, set[int]]:
    """By topic, the queues with messages that the plan did not allocate to clients with different tags."""
    known = {topic: queue_ids for (_, topic), queue_ids in plan.allocated.items()}
    new_queues: defaultdict[str, set[int]] = defaultdict(set)
    for topic, queue_id in new.result.queues:
        if queue_id not in known.get(topic, (queue_id,)):
            new_queues[topic].add(queue_id)
    return dict(new_queues)
