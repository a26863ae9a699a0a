"""How far each queue grew, night by night."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from filtering.consumption.offsets import QueueRestart
from schemas.delta.table import Table, column
from schemas.delta.table_rows import sorted_by

QUEUE_PROGRESS = Table(
    "queue_progress",
    "The entries added to queues, one row per night. Key: broker_name, topic, queue_id, run.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column(
            "from_offset",
            pa.int64(),
            "queue offset of the night's first entry in the present queue",
            nullable=False,
        ),
        column("to_offset", pa.int64(), "queue offset after its last entry", nullable=False),
        column(
            "entries",
            pa.int64(),
            "number of entries, also of an old queue; fewer than there are offsets if records were not decodable",
            nullable=False,
        ),
        column("begins_at", pa.int64()),
        column(
            "began_at",
            pa.int64(),
            "if the queue began again in this night: when that message was stored, ms since the epoch; else null",
        ),
        column(
            "ended_at",
            pa.int64(),
            "if the queue began again in this night: queue offset at which the old one ended; else null",
        ),
        column("run", pa.string(), nullable=False),
    ],
    statistics_on=("run",),
    dictionary_encoded=("topic", "queue_id", "run"),
)


def restarts_of(rows: pa.Table) -> Iterator[tuple[str, str, QueueRestart]]:
    """The restarts of queues that some rows have, in the order of time, each with its run and topic."""
    for row in sorted_by(rows.filter(pc.is_valid(rows["began_at"])), "began_at").to_pylist():
        restart = QueueRestart(row["queue_id"], row["begins_at"], row["began_at"], row["ended_at"])
        yield row["run"], row["topic"], restart
