"""Runs one night: plans it, runs its tasks, and adds the rows of all tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.plan import NightPlan, plan_night
from filtering.delivery.filter_data_in_force import filter_data_in_force
from filtering.delivery.pull_window import PullWindow, UncertainChange
from filtering.sql92 import Expressions
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import SubscriptionRow, subscription_history
from jobs.night.changes import Changes
from jobs.night.hooked_task import filter_hooked, hooked_entries
from jobs.night.hooks import FilterHook, check_groups, hooks_by_group
from jobs.night.log_plan import LogPlan, read_ranges
from jobs.night.log_task import read_range
from jobs.night.new_messages import NewMessages
from jobs.night.progress_rows import Part, ProgressRows, committed_rows, progress_rows
from jobs.night.stages import Stage
from jobs.night.state import BrokerState, offset_batches
from jobs.night.stored_task import filter_stored
from jobs.night.topics import by_topic, filter_data_of_night, first_run_of_backlog, times_of_leaving
from jobs.night.work import NO_INSTANTS, Result, TopicWork, Work
from jobs.night.writer import WRITTEN_BY_TASKS
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.delta_log import StoredFile
from schemas.delta.table import Table
from schemas.messages.stored_entries import StoredRange, stored_ranges
from schemas.quarantine import QUARANTINE
from schemas.queue_progress import QUEUE_PROGRESS
from schemas.spark_tasks import Session
from schemas.storage import Storage


@dataclass(frozen=True)
class NightOutcome:
    """The result of a night. ``settled``: the physical offset from which the next night reads, None without a log."""

    plan: NightPlan
    rows: ProgressRows
    result: Result
    settled: int | None


@dataclass
class Night:
    """One night of one broker. ``events``: all subscription events up to its end, ``as_of`` (ms)."""

    run_id: str
    broker: BrokerConfig
    state: BrokerState
    events: Sequence[SubscriptionEvent]
    offsets: BrokerOffsets
    new: NewMessages
    changes: Changes
    expressions: Expressions
    session: Session
    as_of: int
    stages: frozenset[Stage] = frozenset(Stage)
    hooks: Sequence[FilterHook] = ()
    history: list[SubscriptionRow] = field(init=False)

    def run(self) -> NightOutcome:
        """Filters the messages that groups can pull now, and adds the rows to ``changes``."""
        self.history = subscription_history(self.events, self.broker, self.expressions)
        self.changes.create_missing((*WRITTEN_BY_TASKS, CURRENT_OFFSETS))
        plan = NightPlan((), (), (), ())
        if Stage.DELIVER in self.stages:
            plan = plan_night(self.history, self.events, self.state.offsets, self.offsets, self.broker)
        if self.hooks:
            check_groups(self.hooks, [group.key for group in plan.groups])
        instants = times_of_leaving(plan.groups)
        backlog = self._backlog(plan)  # before the files of new messages are added: it would filter them, too
        if self.hooks:
            new, settled = self._new_with_hooks(plan, instants)
        else:
            new, settled = self._new(plan, instants)
        parts = [part for part in (new, backlog, self._repaired()) if part is not None]
        names = self.run_id, self.broker.broker_name
        rows = progress_rows(
            self.state.topics, plan.groups, self.offsets, parts, new.result.queues, instants, self.as_of, names
        )
        self._add_progress(rows)
        total = Result()
        for part in parts:
            total.add_totals(part.result)
        return NightOutcome(plan, rows, total, settled)

    def _add_progress(self, rows: ProgressRows) -> None:
        self.changes.add_rows(QUEUE_PROGRESS, [rows.progress])
        if Stage.DELIVER in self.stages:
            self.changes.add_rows(CONSUMER_OFFSETS, rows.offsets)
            self.changes.add_rows(DELIVERY_STATS, rows.stats.drop_columns(["broker_name"]).to_batches())
            self.changes.replace_rows(CURRENT_OFFSETS, offset_batches(rows.topics, self.run_id))
        elif Stage.INGEST in self.stages:
            committed = committed_rows(self.state.topics, self.offsets, self.as_of, self.run_id)
            self.changes.add_rows(CONSUMER_OFFSETS, committed)

    def _new(self, plan: NightPlan, instants: Mapping[str, NDArray[np.int64]]) -> tuple[Part, int | None]:
        """Filters the new messages while making their entries."""
        windows, changes = by_topic([*plan.online, *plan.backlog]), by_topic(plan.changes)
        filter_data = filter_data_of_night(self.history, self.broker, self.state.as_of)
        topics = {
            topic: TopicWork.build(
                self.broker,
                filter_data.get(topic, ()),
                windows.get(topic, ()),
                changes.get(topic, ()),
                instants.get(topic, NO_INSTANTS),
            )
            for topic in windows.keys() | filter_data.keys() | instants.keys()
        }
        result, settled = self._read_new(topics)
        return Part(windows, changes, result), settled

    def _new_with_hooks(self, plan: NightPlan, instants: Mapping[str, NDArray[np.int64]]) -> tuple[Part, int | None]:
        """Makes the new entries, and then filters them with the hooks' answers."""
        windows, changes = by_topic([*plan.online, *plan.backlog]), by_topic(plan.changes)
        filter_data = filter_data_of_night(self.history, self.broker, self.state.as_of)
        topics = {
            topic: TopicWork.build(self.broker, filter_data.get(topic, ()), instants=instants.get(topic, NO_INSTANTS))
            for topic in filter_data.keys() | instants.keys()
        }
        paths = {file.path for file in self.changes.files(CONSUMEQUEUE)}
        result, settled = self._read_new(topics)
        new = [file for file in self.changes.files(CONSUMEQUEUE) if file.path not in paths]
        delivered = self._filter_hooked(new, windows, changes)
        delivered.queues = result.queues
        delivered.messages, delivered.damaged_bodies = result.messages, result.damaged_bodies
        return Part(windows, changes, delivered), settled

    def _read_new(self, topics: Mapping[str, TopicWork]) -> tuple[Result, int | None]:
        """Reads the new messages. Returns the results, and the physical offset from which the next night reads."""
        total, settled = Result(), None
        if self.new.log is not None and self.new.store is not None:
            tables = WRITTEN_BY_TASKS if Stage.DISPATCH in self.stages else (COMMITLOG, QUARANTINE)
            settled = self._read_log(self.new.log, self.new.store, self._task(tables, topics), total)
        if self.new.stored is not None and self.stages & {Stage.DISPATCH, Stage.DELIVER}:
            ranges = stored_ranges(self.changes.files, self.new.stored)
            total.add(self._read_stored(ranges, self._task((CONSUMEQUEUE, DELIVERY_BLOCKS), topics)))
        self._add_files(total)
        return total, settled

    def _read_log(self, log: LogPlan, store: Storage, work: Work, total: Result) -> int | None:
        read = partial(read_range, store=store, work=work, bodies=self.new.bodies)
        results = read_ranges(log, read, self.session)
        for result in results:
            total.add(result.result)
        rows_only = replace(work, tables=self._folders((COMMITLOG,)), topics={})
        for part in log.mended:
            total.add(read_range(part, store, rows_only, self.new.bodies).result)
        return results[-1].settled if results else None

    def _repaired(self) -> Part | None:
        """Filters repaired messages as the night that read their damage would have filtered them."""
        log, store = self.new.log, self.new.store
        if log is None or store is None or not log.repaired:
            return None
        always = plan_night(self.history, self.events, OffsetsSoFar(), self.offsets, self.broker)
        windows, data = by_topic(always.online), filter_data_in_force(self.history, self.broker)
        topics = {
            topic: TopicWork.build(self.broker, data.get(topic, ()), windows.get(topic, ()))
            for topic in windows.keys() | data.keys()
        }
        total = Result()
        for part in log.repaired:
            total.add(read_range(part, store, self._task(WRITTEN_BY_TASKS, topics), self.new.bodies).result)
        self._add_files(total)
        return Part(windows, {}, total)

    def _backlog(self, plan: NightPlan) -> Part | None:
        """Filters messages of earlier nights for groups that pull them only now."""
        first_run = first_run_of_backlog(plan, self.state)
        if first_run is None:
            return None
        windows = by_topic(plan.backlog)
        as_of = self.state.as_of
        changes = {
            topic: [change for change in items if as_of is not None and change.stored_from <= as_of]
            for topic, items in by_topic(plan.changes).items()
        }
        if self.hooks:
            files = self.changes.files(CONSUMEQUEUE)
            entry_files = [file for file in files if file.greatest.get("run", first_run) >= first_run]
            return Part(windows, changes, self._filter_hooked(entry_files, windows, changes))
        topics = {
            topic: TopicWork.build(self.broker, (), windows.get(topic, ()), changes.get(topic, ()))
            for topic in windows.keys() | changes.keys()
        }
        ranges = stored_ranges(self.changes.files, first_run=first_run)
        result = self._read_stored(ranges, self._task((DELIVERY_BLOCKS,), topics))
        self._add_files(result)
        return Part(windows, changes, result)

    def _read_stored(self, ranges: Sequence[StoredRange], work: Work) -> Result:
        return filter_stored(ranges, self.changes.files, self.changes.warehouse, work, self.session)

    def _filter_hooked(
        self,
        entry_files: Sequence[StoredFile],
        windows: Mapping[str, Sequence[PullWindow]],
        changes: Mapping[str, Sequence[UncertainChange]],
    ) -> Result:
        """Filters the entries of some files with hooks."""
        if not entry_files:
            return Result()
        hooks = hooks_by_group(self.hooks)
        topics = {
            topic: TopicWork.build(self.broker, (), windows.get(topic, ()), changes.get(topic, ()), hooks=hooks)
            for topic in windows.keys() | changes.keys()
        }
        entries = hooked_entries(self.session(), self.changes, entry_files, self.hooks)
        result = filter_hooked(entries, self._task((DELIVERY_BLOCKS,), topics))
        self._add_files(result)
        return result

    def _task(self, tables: Iterable[Table], topics: Mapping[str, TopicWork]) -> Work:
        return Work(self.run_id, self._folders(tables), topics, self.broker.delay_levels)

    def _folders(self, tables: Iterable[Table]) -> dict[str, Storage]:
        return {table.name: self.changes.warehouse.log(table).storage for table in tables}

    def _add_files(self, result: Result) -> None:
        for table in WRITTEN_BY_TASKS:
            self.changes.add_files(table, result.files[table.name])
