"""For each group and queue, the offset up to which deliveries are decided, and the one the broker committed."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    "Offsets of groups in queues, one row per change. Key: broker_name, consumer_group, topic, queue_id, as_of.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("as_of", pa.int64(), "end of the night, ms since the epoch", nullable=False),
        column("told_to", pa.int64()),
        column("committed", pa.int64()),
        column("run", pa.string(), "the run that saw the change", nullable=False),
    ],
    statistics_on=("as_of", "run"),
    dictionary_encoded=("consumer_group", "topic", "queue_id", "as_of", "run"),
    delta_encoded=("told_to", "committed"),
)
