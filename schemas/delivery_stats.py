"""What the filters did for each group, queue by queue, in one night."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from schemas.delta.table import Table, column

COUNTS = (
    "scanned", "passed_stage1", "passed_stage2", "delivered", "dropped_by_hook", "bit_map_false_positives",
    "hash_collisions", "evaluation_errors", "uncertain", "repeated", "skipped", "lost", "stored", "pending",
)  # fmt: skip
MEANINGS = {
    "scanned": "entries that the group's pulls went past, and the filters judged",
    "passed_stage1": "passed the filter on the consume queue entry: tags code or filter bit map",
    "passed_stage2": "also passed the filter on the message, and returned by the broker",
    "delivered": "messages that also passed the client's tag check and its filter hooks",
    "proven": "deliveries that a client's own traces prove",
    "client_drops": "stopped by the client's tag check",
    "dropped_by_hook": "passed the client's tag check, and dropped by its filter hook",
    "bit_map_false_positives": "passed stage 1 by the filter bit map, not stage 2",
    "hash_collisions": "passed by the hash of their tag, and dropped by a client with the same tags",
    "evaluation_errors": "the expression fails on the message, which counts as no match",
    "uncertain": "not known which of several filters counted: at a change, while clients seem to disagree, or where "
    "clients disagree and messages have no queue ids; or not known where a client that broadcasts went on; or "
    "delivered to clients up to 5.2.0 in a pull that may have a message without a body; or popped, and not known by "
    "which client, or whether it was still there",
    "repeated": "scanned again after an offset reset",
    "skipped": "never pulled: before the group's first start, or jumped over by a reset",
    "lost": "deleted by the broker before the group pulled them, or waiting in a queue that began again",
    "stored": "added to the queue in this night",
    "pending": "not pulled yet at the end of the night",
}
"""What each of COUNTS, ``proven`` and ``client_drops`` counts."""


def client_drops(counts: Mapping[str, int]) -> int:
    """The messages that the client's tag check dropped: hash collisions, and those that clients disagree about."""
    return counts["passed_stage2"] - counts["delivered"] - counts["dropped_by_hook"]


DELIVERY_STATS = Table(
    "delivery_stats",
    "Counts of one night. Key: run, broker_name, consumer_group, topic, queue_id.",
    [
        column("run", pa.string(), nullable=False),
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        *(column(name, pa.int64(), MEANINGS[name], nullable=False) for name in COUNTS),
    ],
    statistics_on=("run", "topic"),
    dictionary_encoded=("run", "consumer_group", "topic", "queue_id", *COUNTS),
)
