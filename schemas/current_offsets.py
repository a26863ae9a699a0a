"""The offsets of each group in each queue after the last night; consumer_offsets has their history."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

CURRENT_OFFSETS = Table(
    "current_offsets",
    "Offsets after the last night. Key: broker_name, topic, queue_id, consumer_group.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), "null: no group has subscribed to the topic of this queue"),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_end", pa.int64(), "queue offset after the last entry", nullable=False),
        column("begins_at", pa.int64()),
        column("told_to", pa.int64()),
        column("committed", pa.int64()),
        column("run", pa.string(), nullable=False),
    ],
    statistics_on=("topic",),
    dictionary_encoded=("consumer_group", "topic", "queue_id", "run"),
    delta_encoded=("queue_end", "begins_at", "told_to", "committed"),
)
