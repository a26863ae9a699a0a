"""What the filters did for each group, queue by queue, in one night."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from schemas.delta.table import Table, column

COUNTS = (
    "scanned", "passed_stage1", "passed_stage2", "delivered", "dropped_by_hook", "bit_map_false_positives",
    "hash_collisions", "evaluation_errors", "uncertain", "repeated", "skipped", "lost", "stored", "pending",
)  # fmt: skip
_COMMENTS = {
    "scanned": "entries that the group pulled past, and the filters judged",
    "passed_stage1": "scanned entries that pass the filter on the consume queue entry",
    "passed_stage2": "entries that also pass the filter on the message: the broker returns them",
    "delivered": "messages that also pass the tag check of the client and its filter hooks",
    "dropped_by_hook": "messages that pass the tag check and are dropped by a filter hook of the client",
    "bit_map_false_positives": "entries that pass stage 1 by the bit map and fail stage 2",
    "hash_collisions": "messages that pass by the hash of their tag, and that a client with the same tags drops",
    "evaluation_errors": "scanned entries whose message makes the expression fail",
    "uncertain": "messages stored just before or after the filter changed, which the old or the new one filtered",
    "repeated": "scanned entries that the group had pulled before, pulled again after an offset reset",
    "skipped": "entries that the group never pulls: before its first start, or jumped over by a reset",
    "lost": "entries that the broker deleted before the group pulled them, or that waited in a queue that began again",
    "stored": "entries added to the queue in this night",
    "pending": "entries that the group has yet to pull, at the end of this night",
}


def client_drops(counts: Mapping[str, int]) -> int:
    """The messages that the client's tag check dropped: hash collisions, and those that clients disagree about."""
    return counts["passed_stage2"] - counts["delivered"] - counts["dropped_by_hook"]


DELIVERY_STATS = Table(
    "delivery_stats",
    "Counts of one night. Key: run, broker_name, consumer_group, topic, queue_id.",
    pa.schema(
        [
            column("run", pa.string(), nullable=False),
            column("broker_name", pa.string(), nullable=False),
            column("consumer_group", pa.string(), nullable=False),
            column("topic", pa.string(), nullable=False),
            column("queue_id", pa.int32(), nullable=False),
            *(column(name, pa.int64(), _COMMENTS[name], nullable=False) for name in COUNTS),
        ]
    ),
    statistics_on=("run", "topic"),
    dictionary_encoded=("run", "consumer_group", "topic", "queue_id", *COUNTS),
)
