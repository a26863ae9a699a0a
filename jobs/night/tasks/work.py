"""The work of a night's task, and its result. Both travel between the driver and its workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.delivery.delivery_blocks import recipients
from filtering.delivery.entries import Int32s, Int64s
from filtering.delivery.filter_data_in_force import FilterDataInForce
from filtering.delivery.filter_hooks import Hook
from filtering.delivery.pull_window import PullWindow, UncertainChange
from filtering.delivery.topic_filters import TopicFilters
from filtering.delivery.uncertain_entries import UncertainEntries
from filtering.subscriptions.events import GroupTopic
from jobs.night.tasks.queue_progress import NO_INSTANTS, Queues, add_progress
from schemas.delta.data_files import DataFile
from schemas.storage import Storage

NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class TopicWork:
    """The filters for the entries of one topic. ``recipients``: a RECIPIENT for each pull window of ``filters``.

    ``instants`` (ms, ascending): times for which the end of each queue is noted. ``hooks``: the filter hooks of a
    window's client, by the window's number. ``clients_take_empty_bodies``: see RocketMQVersion.
    """

    filters: TopicFilters
    recipients: pa.StructArray
    instants: Int64s
    hooks: Mapping[int, Sequence[Hook]]
    clients_take_empty_bodies: bool = True


def works_by_topic(
    broker: BrokerConfig,
    windows: Mapping[str, Sequence[PullWindow]],
    uncertain_changes: Mapping[str, Sequence[UncertainChange]] = NOTHING,
    filter_data: Mapping[str, Sequence[FilterDataInForce]] = NOTHING,
    instants: Mapping[str, Int64s] = NOTHING,
    hooks: Mapping[GroupTopic, Sequence[Hook]] = NOTHING,
) -> dict[str, TopicWork]:
    """The work for each topic that has any of these, which are by topic; only ``hooks`` are by group and topic."""
    m, takes_empty = broker.bloom_filter.m, broker.version.clients_take_empty_bodies
    found = {}
    for topic in windows.keys() | uncertain_changes.keys() | filter_data.keys() | instants.keys():
        of_topic = windows.get(topic, ())
        filters = TopicFilters(m, filter_data.get(topic, ()), of_topic, uncertain_changes.get(topic, ()))
        of_windows = recipients(
            [window.consumer_group for window in of_topic],
            [window.subscription_from for window in of_topic],
            [window.available_at for window in of_topic],
        )
        keys = [window.key for window in of_topic]
        of_clients = {number: hooks[key] for number, key in enumerate(keys) if key in hooks}
        found[topic] = TopicWork(filters, of_windows, instants.get(topic, NO_INSTANTS), of_clients, takes_empty)
    return found


@dataclass(frozen=True, eq=False)
class Work:
    """The work of a task. ``tables``: folders of the tables to write, by name. ``topics``: the filters by topic.

    Threads share it: filters do not change while they run, and copies of thousands of topics take seconds.
    """

    run: str
    tables: Mapping[str, Storage]
    topics: Mapping[str, TopicWork]
    delay_levels: tuple[int, ...]

    def __deepcopy__(self, _memo: dict[int, Any]) -> Work:
        return self

    @cached_property
    def wanted(self) -> dict[str, tuple[str, ...]]:
        """The properties that filters read, by topic."""
        return {topic: work.filters.properties for topic, work in self.topics.items()}


@dataclass(eq=False)
class TopicCounts:
    """The summed BlockResult counts of one topic.

    ``queue_ids`` are ascending. ``scanned`` is windows x queues, ``counts`` windows x queues x window_loops.COUNTS.
    ``uncertain``: by queue id, the uncertain entries of the blocks that have any.
    """

    queue_ids: Int32s
    scanned: Int64s
    counts: Int64s
    uncertain: Mapping[int, Sequence[UncertainEntries]]

    def add(self, other: TopicCounts) -> None:
        """Adds the counts of other blocks of the topic."""
        if np.array_equal(self.queue_ids, other.queue_ids):
            self.scanned += other.scanned
            self.counts += other.counts
        else:
            self._widen(np.union1d(self.queue_ids, other.queue_ids))
            columns = np.searchsorted(self.queue_ids, other.queue_ids)
            self.scanned[:, columns] += other.scanned
            self.counts[:, columns] += other.counts
        self.uncertain = {
            queue_id: [*self.uncertain.get(queue_id, ()), *other.uncertain.get(queue_id, ())]
            for queue_id in self.uncertain.keys() | other.uncertain.keys()
        }

    def _widen(self, queue_ids: Int32s) -> None:
        """Adds queues in which nothing was counted yet."""
        before = self.scanned, self.counts
        columns = np.searchsorted(queue_ids, self.queue_ids)
        self.queue_ids = queue_ids
        self.scanned, self.counts = (
            np.zeros((len(counts), len(queue_ids), *counts.shape[2:]), np.int64) for counts in before
        )
        self.scanned[:, columns], self.counts[:, columns] = before


@dataclass
class TaskResult:
    """The result of a task. ``files`` are by table name, ``queues`` by topic and queue id, ``counts`` by topic.

    ``in_lost_pulls``: the uncertain deliveries that clients may have lost with a message without a body.
    """

    files: defaultdict[str, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    queues: Queues = field(default_factory=dict)
    counts: dict[str, TopicCounts] = field(default_factory=dict)
    damaged_bodies: int = 0
    deliveries: int = 0
    in_lost_pulls: int = 0

    def add(self, other: TaskResult) -> None:
        """Adds the result of another task with the same work, which reads later messages."""
        self.add_totals(other)
        for name, files in other.files.items():
            self.files[name] += files
        for queue, of_queue in other.queues.items():
            for progress in of_queue:
                add_progress(self.queues, queue, progress)
        for topic, counts in other.counts.items():
            self.add_counts(topic, counts)

    def add_counts(self, topic: str, counts: TopicCounts) -> None:
        """Adds the counts of some blocks of a topic. They become part of this result."""
        known = self.counts.setdefault(topic, counts)
        if known is not counts:
            known.add(counts)

    def add_totals(self, other: TaskResult) -> None:
        """Adds the numbers that do not depend on windows."""
        self.damaged_bodies += other.damaged_bodies
        self.deliveries += other.deliveries
        self.in_lost_pulls += other.in_lost_pulls
