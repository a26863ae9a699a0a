"""From consume queue entries to deliveries, an Arrow batch at a time: runs of messages of one queue.

Of the messages of a run that a set of groups got, whatever takes least room is kept: nothing for all of
them, positions for few, and for many a bit a message. Both are kept in words of 64 bits, which any SQL can
take apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.matcher import kernels
from filtering.replay.delivered_sets import DeliveredSets
from filtering.replay.delivery import Delivery, Outcome
from filtering.replay.filter_hooks import Hook, after_hooks

DELIVERED = "DELIVERED"
DROPPED_BY_CLIENT = "DROPPED_BY_CLIENT"
DROPPED_BY_HOOK = "DROPPED_BY_HOOK"
MESSAGES_IN_A_BLOCK = 1 << 16
MILLISECONDS_IN_A_DAY = 86_400_000
POSITIONS_IN_A_WORD = 4

ENTRY_COLUMNS = (
    "broker_name", "topic", "queue_id", "queue_offset", "commitlog_offset", "tags_code", "store_timestamp",
    "filter_bit_map", "properties",
)  # fmt: skip
MATCH = pa.struct(
    [
        ("consumer_group", pa.list_(pa.string())),
        ("outcome", pa.string()),
        ("messages", pa.int32()),
        ("positions", pa.list_(pa.int64())),
        ("bits", pa.list_(pa.int64())),
    ]
)
COUNTS = pa.struct(
    [
        ("consumer_group", pa.string()),
        *(
            (name, pa.int64())
            for name in (
                "passed_stage1",
                "passed_stage2",
                "delivered",
                "dropped_by_hook",
                "bit_map_false_positives",
                "evaluation_errors",
            )
        ),
    ]
)
BLOCK_SCHEMA = pa.schema(
    [
        ("broker_name", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("store_date", pa.date32()),
        ("queue_offset", pa.int64()),
        ("messages", pa.int32()),
        ("commitlog_offset", pa.list_(pa.int64())),
        ("matches", pa.list_(MATCH)),
        ("counts", pa.list_(COUNTS)),
    ]
)


class DeliveryBlocks:
    """Picklable, so that Spark can send it to its workers."""

    def __init__(
        self, deliveries: Mapping[str, Delivery], hooks: Mapping[tuple[str, str], Sequence[Hook]] | None = None
    ) -> None:
        """``deliveries``: by topic; entries of other topics have no subscribers and leave no block.

        ``hooks``: the filter hooks of clients by group and topic.
        """
        self._deliveries = dict(deliveries)
        self._groups = {
            topic: pa.array([f.consumer_group for f in delivery.filters], pa.string())
            for topic, delivery in self._deliveries.items()
        }
        self._hooks = {
            topic: {
                i: tuple(hooks[f.consumer_group, topic])
                for i, f in enumerate(delivery.filters)
                if (f.consumer_group, topic) in hooks
            }
            for topic, delivery in self._deliveries.items()
            if hooks
        }

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of ENTRY_COLUMNS to batches of BLOCK_SCHEMA, a row a run of entries of one queue and day."""
        for batch in batches:
            for run in _runs(batch):
                topic = run["topic"][0].as_py()
                if topic in self._deliveries:
                    yield self._block(topic, run)

    def _block(self, topic: str, run: pa.RecordBatch) -> pa.RecordBatch:
        delivery, groups = self._deliveries[topic], self._groups[topic]
        outcome = delivery.run(
            run["properties"], run["tags_code"], run["store_timestamp"].to_numpy(), run["filter_bit_map"]
        )
        if self._hooks.get(topic):
            outcome = after_hooks(outcome, self._hooks[topic], run)
        day = int(run["store_timestamp"][0].as_py()) // MILLISECONDS_IN_A_DAY
        columns = [
            run["broker_name"].slice(0, 1),
            run["topic"].slice(0, 1),
            run["queue_id"].slice(0, 1),
            pa.array([day], pa.int32()).cast(pa.date32()),
            run["queue_offset"].slice(0, 1),
            pa.array([run.num_rows], pa.int32()),
            _one_list(run["commitlog_offset"]),
            _one_list(_matches(outcome, groups)),
            _one_list(_counts(outcome, groups)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=BLOCK_SCHEMA)


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most MESSAGES_IN_A_BLOCK rows that follow each other in one queue, on one day."""
    if batch.num_rows == 0:
        return
    day = pc.floor(pc.divide(batch["store_timestamp"], MILLISECONDS_IN_A_DAY))
    changes = np.zeros(batch.num_rows, bool)
    for column in (batch["broker_name"], batch["topic"], batch["queue_id"], day):
        changes[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    changes[1:] |= np.diff(batch["queue_offset"].to_numpy()) != 1
    starts = [0, *np.flatnonzero(changes).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        for at in range(start, end, MESSAGES_IN_A_BLOCK):
            yield batch.slice(at, min(MESSAGES_IN_A_BLOCK, end - at))


def _matches(outcome: Outcome, groups: pa.StringArray) -> pa.StructArray:
    return pa.concat_arrays(
        [
            _of_outcome(outcome.delivered, DELIVERED, groups),
            _of_outcome(outcome.dropped_by_client, DROPPED_BY_CLIENT, groups),
            _of_outcome(outcome.dropped_by_hook, DROPPED_BY_HOOK, groups),
        ]
    )


def _of_outcome(sets: DeliveredSets, name: str, groups: pa.StringArray) -> pa.StructArray:
    columns = [
        pa.ListArray.from_arrays(pa.array(sets.starts, pa.int32()), groups.take(pa.array(sets.filters))),
        pa.repeat(name, len(sets)),
        pa.array(sets.counts, pa.int32()),
        *_kept(sets),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(MATCH))


def _kept(sets: DeliveredSets) -> tuple[pa.ListArray, pa.ListArray]:
    """(positions, bits): positions of few messages, four a word, the lowest first; bits of many, not all."""
    few = sets.counts * (64 // POSITIONS_IN_A_WORD) < sets.rows
    many = ~few & (sets.counts < sets.rows)
    words = -(-sets.counts[few] // POSITIONS_IN_A_WORD)
    starts = np.append(0, np.cumsum(words * POSITIONS_IN_A_WORD))
    positions = kernels.backend.expand(sets.bits, sets.chosen[few], starts, np.uint16)
    bits = sets.bits[sets.chosen[many]]
    return (
        _lists_of_words(few, words, positions.view(np.int64)),
        _lists_of_words(many, bits.shape[1], bits.view(np.int64).reshape(-1)),
    )


def _lists_of_words(valid: npt.NDArray[np.bool_], lengths: npt.ArrayLike, words: npt.NDArray[np.int64]) -> pa.ListArray:
    """A list of so many words for each that is valid."""
    all_lengths = np.zeros(len(valid), np.int64)
    all_lengths[valid] = lengths
    offsets = pa.array(np.append(0, np.cumsum(all_lengths)), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(words), mask=pa.array(~valid))


def _counts(outcome: Outcome, groups: pa.StringArray) -> pa.StructArray:
    counts = (
        outcome.passed_stage1,
        outcome.passed_stage2,
        outcome.delivered_count,
        outcome.dropped_by_hook_count,
        outcome.bit_map_false_positives,
        outcome.evaluation_errors,
    )
    return pa.StructArray.from_arrays(
        [groups, *(pa.array(column, pa.int64()) for column in counts)], fields=list(COUNTS)
    )


def _one_list(values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
