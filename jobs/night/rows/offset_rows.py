"""Offsets of groups as rows: of current_offsets, and of consumer_offsets, their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.consumption.offsets import REMOVED, UNKNOWN, BrokerOffsets, TopicOffsets
from schemas.arrow_batches import numbered, repeated
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.current_offsets import CURRENT_OFFSETS


def current_offset_rows(topics: Mapping[str, TopicOffsets], run: str) -> list[pa.RecordBatch]:
    """The offsets as rows of current_offsets, topic by topic."""
    return [_current_offset_rows(topic, offsets, run) for topic, offsets in topics.items()]


def _current_offset_rows(topic: str, offsets: TopicOffsets, run: str) -> pa.RecordBatch:
    """A row for each group and queue. A topic without groups has a row without a group for each queue."""
    queues, groups = len(offsets.queue_ids), len(offsets.groups)
    rows = queues * max(1, groups)
    begins = np.tile(offsets.begins, max(1, groups))
    columns = {
        "topic": repeated(topic, rows),
        "queue_id": pa.array(np.tile(np.array(offsets.queue_ids, np.int32), max(1, groups))),
        "queue_end": pa.array(np.tile(offsets.ends, max(1, groups))),
        "begins_at": pa.array(begins, mask=begins == 0),
        "run": repeated(run, rows),
    }
    if groups:
        told_to, committed = (array.reshape(-1) for array in (offsets.told_to, offsets.committed))
        columns |= {
            "consumer_group": numbered(offsets.groups, np.repeat(np.arange(groups), queues)),
            "told_to": pa.array(told_to, mask=told_to == UNKNOWN),
            "committed": pa.array(committed, mask=committed == UNKNOWN),
        }
    return CURRENT_OFFSETS.batch(columns, rows)


def changed_offset_rows(
    topic: str, offsets: TopicOffsets, changed: NDArray[np.bool_], as_of: int, run: str
) -> pa.RecordBatch:
    """Rows of consumer_offsets. ``changed``: which offsets they are, as groups x queues."""
    rows, columns = np.nonzero(changed)
    count = len(rows)
    committed = offsets.committed[rows, columns]
    told_to = offsets.told_to[rows, columns]
    values = {
        "consumer_group": numbered(offsets.groups, rows),
        "topic": repeated(topic, count),
        "queue_id": pa.array(np.array(offsets.queue_ids, np.int32)[columns]),
        "as_of": pa.repeat(pa.scalar(as_of, pa.int64()), count),
        "told_to": pa.array(told_to, mask=told_to == UNKNOWN),
        "committed": pa.array(committed, mask=committed == UNKNOWN),
        "run": repeated(run, count),
    }
    return CONSUMER_OFFSETS.batch(values, count)


def committed_rows(
    before: Mapping[str, TopicOffsets], broker_offsets: BrokerOffsets, as_of: int, run: str
) -> Sequence[pa.RecordBatch]:
    """Rows of consumer_offsets with the committed offsets of a snapshot that differ from those of the last night.

    ``before``: the offsets when that night ended. Those that the broker has removed since are listed, too. Without
    known queues, these may be of a deleted topic: deliver sees whether it was created again.
    """
    committed = [
        (group, topic, queue_id, offset)
        for (group, topic), offsets in broker_offsets.committed.items()
        for queue_id, offset in offsets.items()
        if topic not in before or before[topic].committed_by(group, queue_id) != offset
    ]
    committed += [
        (group, topic, queue_id, REMOVED)
        for topic, offsets in before.items()
        if topic in broker_offsets.min_offsets or not broker_offsets.min_offsets
        for group in offsets.absent(topic, broker_offsets)
        for queue_id in offsets.queue_ids
        if offsets.committed_by(group, queue_id) != UNKNOWN
    ]
    rows = [
        {
            "consumer_group": group, "topic": topic, "queue_id": queue_id, "as_of": as_of, "committed": offset,
            "run": run,
        }
        for group, topic, queue_id, offset in committed
    ]  # fmt: skip
    return [CONSUMER_OFFSETS.rows_batch(rows)] if rows else []
