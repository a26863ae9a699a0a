"""What the filters did for each group, queue by queue, in one night."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

COUNTS = (
    "scanned", "passed_stage1", "passed_stage2", "delivered", "dropped_by_hook", "bit_map_false_positives",
    "hash_collisions", "evaluation_errors", "uncertain", "repeated", "skipped", "lost", "stored", "pending",
)  # fmt: skip
_COMMENTS = {
    "scanned": "entries that the group pulled past, and the filters judged",
    "passed_stage1": "of those, passed on the consume queue entry",
    "passed_stage2": "passed on the message too: returned by the broker",
    "delivered": "passed the tag check of the client and its filter hooks too",
    "dropped_by_hook": "passed the tag check, dropped by a filter hook of the client",
    "bit_map_false_positives": "passed stage 1 by the bit map, failed stage 2",
    "hash_collisions": "passed by the tag hash, dropped by the client",
    "evaluation_errors": "scanned entries on whose message the expression fails",
    "uncertain": "stored just before the subscription changed, and match only one of the two expressions",
    "repeated": "of the scanned entries, those that an earlier pull had been judged by already",
    "skipped": "entries that the group never pulls: before its first start, or jumped over by a reset",
    "lost": "entries that the broker deleted before the group pulled them",
    "stored": "entries that the queue got in this night",
    "pending": "entries that the group has yet to pull, at the end of this night",
}

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
    dictionary=("run", "consumer_group", "topic", "queue_id", *COUNTS),
)
