"""How far each queue grew, night by night."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

QUEUE_PROGRESS = Table(
    "queue_progress",
    "The entries added to queues, one row per night. Key: broker_name, topic, queue_id, run.",
    pa.schema(
        [
            column("broker_name", pa.string(), nullable=False),
            column("topic", pa.string(), nullable=False),
            column("queue_id", pa.int32(), nullable=False),
            column("from_offset", pa.int64(), "queue offset of the night's first entry", nullable=False),
            column("to_offset", pa.int64(), "queue offset after its last entry", nullable=False),
            column(
                "entries",
                pa.int64(),
                "number of entries; fewer than there are offsets if records were not decodable",
                nullable=False,
            ),
            column("run", pa.string(), nullable=False),
        ]
    ),
    statistics_on=("run",),
    dictionary_encoded=("topic", "queue_id", "run"),
)
