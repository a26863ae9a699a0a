"""From consume queue entries to deliveries, an Arrow batch at a time: runs of messages of one queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.replay.block_matches import MATCH, block_matches
from filtering.replay.delivery import Delivery, Outcome
from filtering.replay.filter_hooks import Hook, after_hooks

MESSAGES_IN_A_BLOCK = 1 << 16
MILLISECONDS_IN_A_DAY = 86_400_000

ENTRY_COLUMNS = (
    "broker_name", "topic", "queue_id", "queue_offset", "commitlog_offset", "tags_code", "store_timestamp",
    "filter_bit_map", "properties",
)  # fmt: skip
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
            topic: pa.array(delivery.consumer_groups, pa.string()) for topic, delivery in self._deliveries.items()
        }
        self._hooks = {
            topic: {
                i: tuple(hooks[group, topic])
                for i, group in enumerate(delivery.consumer_groups)
                if (group, topic) in hooks
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
            _one_list(block_matches(outcome, groups)),
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
