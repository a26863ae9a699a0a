"""The state of one broker after its earlier nights: how far its log was read, and each group's offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import NO_QUEUES, OffsetsSoFar, TopicOffsets
from filtering.consumption.renewals import QueueRenewal
from filtering.sql92 import Expressions
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.delta.aggregates import greatest
from schemas.delta.table import Table
from schemas.delta.table_rows import Where, sorted_by, tuples, within
from schemas.delta.warehouse import Warehouse
from schemas.ledger_inputs import LAST_STORED
from schemas.pull_windows import PULL_WINDOWS
from schemas.queue_progress import QUEUE_PROGRESS, renewals_of
from schemas.run_ledger import LedgerEntry, earlier_configs, filtered_to, nights_of, unreplaced_runs
from schemas.subscriptions import read_events


@dataclass(frozen=True)
class BrokerState:
    """The state of a broker after its last night.

    ``entries``: the ledger entries of the broker. ``topics``: offsets by topic. ``events``: all applied subscription
    events. ``read_progress`` reads the rows of queue_progress.
    """

    entries: Sequence[LedgerEntry]
    topics: dict[str, TopicOffsets] = field(default_factory=dict)
    events: tuple[SubscriptionEvent, ...] = ()
    read_progress: Callable[[], pa.Table] = QUEUE_PROGRESS.file_schema.empty_table

    @property
    def last(self) -> LedgerEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def first_prepared(self) -> str | None:
        """The first run after the last one that delivered messages; None if there is none."""
        prepared = takewhile(lambda entry: not entry.delivers, reversed(self.entries))
        return min((entry.run for entry in prepared), default=None)

    @cached_property
    def nights(self) -> Sequence[LedgerEntry]:
        """The entries of runs whose deliveries are in the tables."""
        return nights_of(unreplaced_runs(self.entries))

    def first_run(self, index: int) -> str:
        """The first run of a night: the first step that prepared it, or its own run."""
        before = self.nights[index - 1].run if index else ""
        return next(entry.run for entry in unreplaced_runs(self.entries) if entry.run > before)

    @property
    def filtered_to(self) -> int:
        """The physical offset up to which the last night filtered messages."""
        return filtered_to(self.nights)

    @property
    def has_windows(self) -> bool:
        """Whether pull_windows has the windows of all nights: an older mqsieve did not store them."""
        return self.last is None or PULL_WINDOWS.name in self.last.tables

    @property
    def has_queue_ids(self) -> bool:
        """Whether the messages so far have real queue ids."""
        return self.last is None or self.last.has_queue_ids

    @property
    def config(self) -> BrokerConfig | None:
        """The broker's configuration in the last night."""
        return self.nights[-1].broker if self.nights else None

    def history(
        self, events: Iterable[SubscriptionEvent], broker: BrokerConfig, expressions: Expressions
    ) -> list[SubscriptionRow]:
        """The history of subscriptions after some events, for a night after these with the configuration ``broker``."""
        return subscription_history(events, broker, expressions, earlier_configs(self.nights))

    @property
    def as_of(self) -> int | None:
        """The end of the last night, ms."""
        return self.last.as_of if self.last else None

    @property
    def offsets(self) -> OffsetsSoFar:
        read_to = self.last.inputs.get(LAST_STORED) if self.last else None
        return OffsetsSoFar(self.as_of, self.topics, int(read_to) if read_to else None, self._began_at)

    @cached_property
    def _began_at(self) -> dict[tuple[str, int], int]:
        """By topic and queue id, when a queue began again (ms), if it did."""
        if not any(known.begins.any() for known in self.topics.values()):
            return {}
        return {(topic, each.queue_id): each.at for _, topic, each in renewals_of(self._present_progress)}

    @cached_property
    def progress(self) -> pa.Table:
        """Rows of queue_progress in the order of the runs. Only backlogs need them, so they are read on demand."""
        return sorted_by(self.read_progress(), "run")

    @cached_property
    def _present_progress(self) -> pa.Table:
        """The rows of present queues: not of those that ended, or that dispatch has found since the last night."""
        begins = {
            (topic, queue_id): begin
            for topic, known in self.topics.items()
            for queue_id, begin in known.begins_by_queue.items()
        }
        rows = tuples(self.progress, "topic", "queue_id", "begins_at")
        present = [begins.get((topic, queue), 0) == (begin or 0) for topic, queue, begin in rows]
        return self.progress.filter(pa.array(present, pa.bool_()))

    def renewals_since(self, before: BrokerState) -> dict[str, list[QueueRenewal]]:
        """By topic, how queues began again since an earlier state: the last renewal of each."""
        found: defaultdict[str, list[QueueRenewal]] = defaultdict(list)
        for _, topic, renewal in renewals_of(self.progress):
            begin_now, begin_then = (state.offsets.begins(topic).get(renewal.queue_id) for state in (self, before))
            if begin_now == renewal.commitlog_offset != begin_then:
                found[topic].append(renewal)
        return dict(found)

    def first_run_with(self, topic: str, queue_id: int, offset: int) -> str | None:
        """The first run with an entry of the present queue at or after a queue offset; None if no run has one."""
        ends, runs = self._runs.get((topic, queue_id), ([], []))
        at = bisect_right(ends, offset)
        return runs[at] if at < len(runs) else None

    @cached_property
    def _runs(self) -> dict[tuple[str, int], tuple[list[int], list[str]]]:
        """By queue: the end offsets of the runs' entries, and the runs."""
        found: defaultdict[tuple[str, int], tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
        for topic, queue_id, end, run in tuples(self._present_progress, "topic", "queue_id", "to_offset", "run"):
            ends, runs = found[topic, queue_id]
            ends.append(max(end, ends[-1] if ends else 0))  # a message log may grow in the middle
            runs.append(run)
        return found


def read_state(warehouse: Warehouse, entries: Sequence[LedgerEntry]) -> BrokerState:
    if not entries:
        return BrokerState(())
    name = entries[0].broker_name
    rows = _rows(warehouse, CURRENT_OFFSETS, name)
    queues = _queues(rows, "queue_end")
    offsets = rows.filter(pc.is_valid(rows["consumer_group"]))
    return BrokerState(
        entries,
        _topic_offsets(offsets, queues),
        read_events(warehouse, name),
        lambda: _rows(warehouse, QUEUE_PROGRESS, name),
    )


def read_state_before(warehouse: Warehouse, entries: Sequence[LedgerEntry], run: str) -> BrokerState:
    """The state before a run of a broker, from the history of offsets."""
    name = entries[0].broker_name
    earlier = [within("run", below=run)]
    progress = _rows(warehouse, QUEUE_PROGRESS, name, earlier)
    offsets = _rows(warehouse, CONSUMER_OFFSETS, name, earlier)
    return BrokerState(
        [entry for entry in entries if entry.run < run],
        _topic_offsets(offsets, _queues(progress, "to_offset")),
        read_events(warehouse, name),
        lambda: progress,
    )


def _queues(rows: pa.Table, column: str) -> dict[str, TopicOffsets]:
    """The queues of each topic, without groups. ``column``: that of the ends."""
    by_queue = ["topic", "queue_id"]
    begins_at = rows["begins_at"].fill_null(0)
    begins = greatest(rows.select(by_queue).append_column("begins_at", begins_at), by_queue, "begins_at")
    if any(begins.values()):
        begin_of = [begins[queue] for queue in tuples(rows, *by_queue)]
        rows = rows.filter(pa.array(begins_at.to_numpy() == np.array(begin_of, np.int64)))
    by_topic: defaultdict[str, tuple[dict[int, int], dict[int, int]]] = defaultdict(lambda: ({}, {}))
    for (topic, queue_id), end in greatest(rows, by_queue, column).items():
        by_topic[topic][0][queue_id], by_topic[topic][1][queue_id] = end, begins[topic, queue_id]
    return {topic: TopicOffsets.empty(ends, (), of_topic) for topic, (ends, of_topic) in by_topic.items()}


def _rows(warehouse: Warehouse, table: Table, broker_name: str, where: Where = ()) -> pa.Table:
    files = warehouse.files(table, broker_name)
    return warehouse.rows(table, where=where, files=files)


def _topic_offsets(rows: pa.Table, queues: dict[str, TopicOffsets]) -> dict[str, TopicOffsets]:
    """The last offsets of each group and queue. Of both kinds, a row may have only one."""
    rows = sorted_by(rows, "run").combine_chunks()
    topics = rows["topic"].combine_chunks().dictionary_encode()
    offsets = dict(queues)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        topic_rows = rows.filter(pa.array(topics.indices.to_numpy() == code))
        known = queues.get(topic, NO_QUEUES)
        # Consumers may commit an offset in a queue without messages.
        topic_rows = topic_rows.filter(pa.array(np.isin(topic_rows["queue_id"].to_numpy(), list(known.queue_ids))))
        groups = topic_rows["consumer_group"].combine_chunks().dictionary_encode()
        known = known.extended(known.ends_by_queue, groups.dictionary.to_pylist(), known.begins_by_queue)
        columns = np.searchsorted(known.queue_ids, topic_rows["queue_id"].to_numpy())
        rows_of_groups = groups.indices.to_numpy()
        for name, last in (("told_to", known.told_to), ("committed", known.committed)):
            is_valid = topic_rows[name].is_valid().to_numpy()
            # NumPy keeps the last of several values for one index.
            last[rows_of_groups[is_valid], columns[is_valid]] = topic_rows[name].drop_null().to_numpy()
        offsets[topic] = known
    return offsets
