"""Runs the tasks of a night: they filter messages and write files, which become part of the night's changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Int64s
from filtering.delivery.filter_data_in_force import FilterDataInForce
from filtering.delivery.pull_window import PullWindow, UncertainChange
from jobs.night.commit.changes import Changes
from jobs.night.inputs.hooks import FilterHook, hooks_by_group
from jobs.night.log.log_plan import LogPlan
from jobs.night.past.new_messages import NewMessages
from jobs.night.rows.progress_rows import Part
from jobs.night.tasks.log_task import LogRange, RangeResult, read_range
from jobs.night.tasks.stored_task import filter_stored
from jobs.night.tasks.work import TaskResult, TopicWork, Work, works_by_topic
from jobs.night.tasks.writer import WRITTEN_BY_TASKS
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.data_files import StoredFile
from schemas.delta.table import Table
from schemas.messages.stored_ranges import StoredRange
from schemas.spark_tasks import Session

Windows = Mapping[str, Sequence[PullWindow]]
UncertainChanges = Mapping[str, Sequence[UncertainChange]]


@dataclass(frozen=True)
class NightTasks:
    """Runs the tasks of one night. Windows, filter changes, filter data and instants are by topic."""

    broker: BrokerConfig
    changes: Changes
    session: Session
    hooks: Sequence[FilterHook]
    new: NewMessages

    def make_entries(
        self,
        read: Callable[[Mapping[str, TopicWork]], TaskResult],
        windows: Windows,
        uncertain_changes: UncertainChanges,
        filter_data: Mapping[str, Sequence[FilterDataInForce]],
        instants: Mapping[str, Int64s],
    ) -> Part:
        """Makes the entries of the messages that ``read`` reads, and filters them. :meth:`add` adds them."""
        windows_now, uncertain_changes_now = ({}, {}) if self.hooks else (windows, uncertain_changes)
        topics = works_by_topic(self.broker, windows_now, uncertain_changes_now, filter_data, instants)
        return Part(windows, uncertain_changes, read(topics))

    def add(self, part: Part) -> Part:
        """Adds the files of new entries. Hooks are asked after that."""
        result = part.result
        self.add_files(result)
        if not self.hooks:
            return part
        paths = {file.path for file in result.files[CONSUMEQUEUE.name]}
        new = [file for file in self.changes.files(CONSUMEQUEUE) if file.path in paths]
        delivered = self.filter_hooked(new, part.windows, part.uncertain_changes)
        delivered.queues = result.queues
        delivered.damaged_bodies = result.damaged_bodies
        return replace(part, result=delivered)

    def discard(self, part: Part) -> None:
        """Deletes the files of new entries that are made again."""
        for name, files in part.result.files.items():
            table = next(table for table in WRITTEN_BY_TASKS if table.name == name)
            file_system = self.changes.warehouse.log(table).storage.file_system
            for file in files:
                file_system.delete_file(file.path)

    def filter_hooked(
        self, files: Sequence[StoredFile], windows: Windows, uncertain_changes: UncertainChanges
    ) -> TaskResult:
        """Filters the entries of some files of consumequeue with hooks."""
        from jobs.night.tasks.hooked_task import filter_hooked, hooked_entries

        if not files:
            return TaskResult()
        topics = works_by_topic(self.broker, windows, uncertain_changes, hooks=hooks_by_group(self.hooks))
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
        return partial(read_range, store=plan.log.store, work=work, bodies=self.new.bodies)

    def read_again(
        self, parts: Iterable[LogRange], tables: Iterable[Table], topics: Mapping[str, TopicWork]
    ) -> TaskResult:
        """Reads parts of the log in this process: few messages that an earlier night could not read."""
        total = TaskResult()
        if self.new.plan is not None:
            read = self.reader(self.new.plan, tables, topics)
            for part in parts:
                total.add(read(part).result)
        return total

    def work(self, tables: Iterable[Table], topics: Mapping[str, TopicWork]) -> Work:
        folders = {table.name: self.changes.warehouse.log(table).storage for table in tables}
        return Work(self.changes.run, folders, topics, self.broker.delay_levels)

    def add_files(self, result: TaskResult) -> None:
        """Adds the files that tasks wrote to the night's changes."""
        for table in WRITTEN_BY_TASKS:
            self.changes.add_files(table, result.files[table.name])
