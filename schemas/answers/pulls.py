"""The pulls that a group needs to read its queues, with the filter bit map and without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import message_filters
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.matcher import packed_bits
from filtering.predicate import TRUE
from filtering.pulls.pull import refusal
from filtering.pulls.pull_simulation import Pull, Queue, simulate_pulls
from schemas.answers.facts import BrokerFacts
from schemas.errors import UsageError, did_you_mean
from schemas.messages.stored_entries import scan_entries
from schemas.spark_tasks import Session

FLAGS = pa.schema(
    [
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("size", pa.int32()),
        ("stage1", pa.bool_()),
        ("tags", pa.bool_()),
        ("stage2", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class StageFlags:
    """Finds the filter stages that entries pass for one subscription. Spark pickles it for its workers."""

    filters: TopicFilters

    @classmethod
    def of(cls, window: PullWindow, bit_num: int) -> StageFlags:
        without_bit_map = replace(window, message_filter=replace(window.message_filter, bit_pos=()))
        unfiltered = replace(window, message_filter=replace(window.message_filter, bit_pos=(), tags=TRUE))
        return cls(TopicFilters(bit_num, windows=[window, without_bit_map, unfiltered]))

    def __call__(self, blocks: Iterable[Entries]) -> pa.Table:
        """Rows of FLAGS: ``stage1`` and, without a bit map, ``tags`` are for the entry, ``stage2`` for the message."""
        batches = [self._batch(entries) for entries in blocks]
        return pa.Table.from_batches(batches, FLAGS)

    def _batch(self, entries: Entries) -> pa.RecordBatch:
        passed = packed_bits.unpack(self.filters.stage1(entries), len(entries))
        block = self.filters.run(entries)
        windows = self.filters.windows
        returned = block.delivered.flags(windows) | block.dropped_by_client.flags(windows)
        columns = [entries.queue_id, entries.queue_offset, entries.size, passed[0], passed[1], returned[2]]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=FLAGS)


@dataclass(frozen=True)
class QueuePulls:
    """The pulls of one queue as the broker is configured, and as they would be without bit maps."""

    queue_id: int
    as_configured: list[Pull]
    without_bit_map: list[Pull]


def pulls_of(
    facts: BrokerFacts,
    broker: BrokerConfig,
    group: str,
    topic: str,
    begin_offset: int | None,
    batch: int,
    session: Session,
) -> list[QueuePulls]:
    """The pulls of a group from an offset (None: each queue's first), by queue.

    Raises UsageError if the group does not subscribe to the topic, or the broker refuses its pulls.
    """
    in_force = facts.in_force()
    wanted = [row for row in in_force if (row.consumer_group, row.topic) == (group, topic)]
    if not wanted:
        facts.subscriptions_of(group)
        topics = sorted(row.topic for row in in_force if row.consumer_group == group)
        raise UsageError(f"{group} has no subscription to {topic}{did_you_mean(topic, topics)}")
    code = refusal(wanted[0], broker)
    if code is not None:
        raise UsageError(f"the broker answers every pull of {group} on {topic} with {code.name}")
    filters = [f for f in message_filters(in_force, broker) if (f.consumer_group, f.topic) == (group, topic)]
    flags = StageFlags.of(PullWindow(filters[0], wanted[0].valid_from), broker.bloom_filter.m)
    parts = scan_entries(facts.warehouse, facts.name, {topic: flags.filters.properties}, flags, session)
    rows = pa.concat_tables([FLAGS.empty_table(), *parts])
    return [
        QueuePulls(queue_id, *(_simulated(queue, begin_offset, broker, batch) for queue in _queues(rows, queue_id)))
        for queue_id in sorted(set(rows["queue_id"].to_pylist()))
    ]


def _simulated(queue: Queue, begin_offset: int | None, broker: BrokerConfig, batch: int) -> list[Pull]:
    begin = queue.min_offset if begin_offset is None else begin_offset
    return list(simulate_pulls(queue, begin, broker, batch))


def _queues(flags: pa.Table, queue_id: int) -> tuple[Queue, Queue]:
    """One queue with the bit map and without it. Entries that are not in the table pass nothing."""
    queue_rows = flags.filter(pc.equal(flags["queue_id"], queue_id))
    offsets = queue_rows["queue_offset"].to_numpy()
    first = int(offsets.min())
    count = int(offsets.max()) + 1 - first
    sizes = np.zeros(count, np.int64)
    sizes[offsets - first] = queue_rows["size"].to_numpy()
    stage1, tags, stage2 = np.zeros((3, count), np.bool_)
    for flags_of_stage, name in ((stage1, "stage1"), (tags, "tags"), (stage2, "stage2")):
        flags_of_stage[offsets - first] = queue_rows[name].to_numpy()
    return Queue(sizes, stage1, stage2, first), Queue(sizes, tags, stage2, first)
