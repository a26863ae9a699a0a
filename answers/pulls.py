"""The pulls that a group needs to read its queues, with the filter bit map and without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from answers.facts import BrokerFacts
from filtering.broker_config import BrokerConfig
from filtering.counted import did_you_mean
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import message_filter
from filtering.delivery.pull_window import OffsetRange, PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.frozen import frozen
from filtering.matcher import packed_bits
from filtering.predicate import TRUE
from filtering.pulls import Pull, Queue, refusal, simulate_pulls
from schemas.arrow_batches import schema_of
from schemas.delta.table_rows import sorted_by
from schemas.errors import UsageError
from schemas.messages.stored_messages import scan_entries
from schemas.spark_tasks import Session

FIRST_PULLS = 20
MOST_MISSING = 1 << 26
"""The greatest number of missing messages in a queue whose pulls are simulated: each takes 7 bytes of memory."""
FLAGS = schema_of("queue_id int32, queue_offset int64, size int32, stage1 bool, tags bool, stage2 bool")


@frozen
class StageFlags:
    """Finds the filter stages that entries pass for one subscription. Spark pickles it for its workers.

    Entries of messages before the physical offset ``log_start`` are left out: the broker deleted them.
    ``physical_ranges``: by queue id, the physical offsets of the entries of queues that began again.
    """

    filters: TopicFilters
    log_start: int
    physical_ranges: Mapping[int, OffsetRange]

    @classmethod
    def of(
        cls, window: PullWindow, bit_num: int, log_start: int, physical_ranges: Mapping[int, OffsetRange]
    ) -> StageFlags:
        """The flags of a subscription's window. ``bit_num``: the bits of a filter bit map."""
        unfiltered = replace(window, message_filter=replace(window.message_filter, bit_pos=(), tags=TRUE))
        windows = [window, window.without_bit_map, unfiltered]
        return cls(TopicFilters(bit_num, windows=windows), log_start, physical_ranges)

    def __call__(self, blocks: Iterable[Entries]) -> pa.Table:
        """Rows of FLAGS, one for each entry.

        ``stage1``: it passes by its tags code or bit map. ``tags``: it passes if no bit map is used. ``stage2``: its
        message passes the expression.
        """
        batches = [self._batch(entries) for entries in blocks]
        return pa.Table.from_batches(batches, FLAGS)

    def _batch(self, entries: Entries) -> pa.RecordBatch:
        passed = packed_bits.unpack(self.filters.stage1(entries), len(entries))
        block = self.filters.run(entries)
        count = self.filters.window_count
        returned = block.delivered.flags(count) | block.dropped_by_client.flags(count)
        columns = [entries.queue_id, entries.queue_offset, entries.size, passed[0], passed[1], returned[2]]
        kept = entries.commitlog_offset >= self.log_start
        for queue_id, (begin, _) in self.physical_ranges.items():
            kept &= (entries.queue_id != queue_id) | (entries.commitlog_offset >= begin)
        return pa.RecordBatch.from_arrays([pa.array(column[kept]) for column in columns], schema=FLAGS)


@dataclass
class PullTotals:
    """The ``first`` pulls of a queue, the number of all of them, and their sums."""

    first: list[Pull] = field(default_factory=list)
    pulls: int = 0
    scanned: int = 0
    read: int = 0
    found: int = 0


@frozen
class QueuePulls:
    """The pulls of one queue as the broker is configured, and as they would be without bit maps."""

    queue_id: int
    as_configured: PullTotals
    without_bit_map: PullTotals


def pulls_of(
    facts: BrokerFacts,
    broker: BrokerConfig,
    group: str,
    topic: str,
    begin_offset: int | None,
    batch: int,
    session: Session,
) -> list[QueuePulls]:
    """The pulls of a group from an offset (None: each queue's first in the broker's log), by queue.

    Raises UsageError if the group does not subscribe to the topic, if the broker refuses its pulls, if more than
    MOST_MISSING messages of a queue are missing (one of them then has a wrong queue offset), and for a replay.
    """
    facts.check_has_messages()
    in_force = facts.in_force_of([group])
    wanted = [row for row in in_force if row.key == (group, topic)]
    if not wanted:
        facts.subscriptions_of(group)
        topics = sorted(row.topic for row in in_force)
        raise UsageError(f"{group} has no subscription to {topic}{did_you_mean(topic, topics)}")
    code = refusal(wanted[0], broker)
    if code is not None:
        raise UsageError(f"the broker answers every pull of {group} on {topic} with {code.text}")
    decides = message_filter(wanted[0], in_force, broker)
    assert decides is not None
    window = PullWindow(decides, wanted[0].valid_from)
    physical_ranges = facts.physical_ranges(topic, {queue_id for name, queue_id in facts.begins if name == topic})
    flags = StageFlags.of(window, broker.bloom_filter.m, facts.last.log_start or 0, physical_ranges)
    parts = scan_entries(facts.warehouse, facts.name, {topic: flags.filters.properties}, flags, session)
    entries = sorted_by(pa.concat_tables([FLAGS.empty_table(), *parts]), "queue_id").combine_chunks()
    ids, begins = np.unique(entries["queue_id"].to_numpy(), return_index=True)
    rows = pairwise([*begins.tolist(), len(entries)])
    queues = (
        (queue_id, _queues(entries.slice(begin, end - begin), topic, queue_id))
        for queue_id, (begin, end) in zip(ids.tolist(), rows, strict=True)
    )
    return [
        QueuePulls(queue_id, *(_totals(queue, begin_offset, broker, batch) for queue in both))
        for queue_id, both in queues
    ]


def _totals(queue: Queue, begin_offset: int | None, broker: BrokerConfig, batch: int) -> PullTotals:
    totals = PullTotals()
    for pull in simulate_pulls(queue, queue.min_offset if begin_offset is None else begin_offset, broker, batch):
        if totals.pulls < FIRST_PULLS:
            totals.first.append(pull)
        totals.pulls += 1
        totals.scanned += pull.scanned
        totals.read += pull.read
        totals.found += pull.found
    return totals


def _queues(entries: pa.Table, topic: str, queue_id: int) -> tuple[Queue, Queue]:
    """One queue with the bit map and without it, from its rows of FLAGS. Entries that are not there pass nothing."""
    offsets = entries["queue_offset"].to_numpy()
    first = int(offsets.min())
    count = int(offsets.max()) + 1 - first
    if count - len(entries) > MOST_MISSING:
        raise UsageError(
            f"{topic}/{queue_id} cannot be simulated: its queue offsets reach from {first:,} to {first + count - 1:,}, "
            f"and only {len(entries):,} of these messages are stored"
        )
    sizes, (stage1, tags, stage2) = np.zeros(count, np.int32), np.zeros((3, count), np.bool_)
    for array, name in ((sizes, "size"), (stage1, "stage1"), (tags, "tags"), (stage2, "stage2")):
        array[offsets - first] = entries[name].to_numpy()
    return Queue(sizes, stage1, stage2, first), Queue(sizes, tags, stage2, first)
