"""The consume queue entries that the broker derives from its commitlog, and the filter bit maps beside them."""

from __future__ import annotations

import pyarrow as pa

from filtering.subscriptions.namespace import LMQ_PREFIX
from schemas.delta.table import Table, column
from schemas.delta.table_rows import within

CONSUMEQUEUE = Table(
    "consumequeue",
    "Consume queue entries with their extension. Key: broker_name, topic, queue_id, queue_offset.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_offset", pa.int64(), nullable=False),
        column("commitlog_offset", pa.int64(), nullable=False),
        column("size", pa.int32(), "bytes of the record in the commitlog", nullable=False),
        column(
            "tags_code",
            pa.int64(),
            "hash of the tag; in SCHEDULE_TOPIC_XXXX the delivery time in ms",
            nullable=False,
        ),
        column("store_timestamp", pa.int64(), "ms since the epoch", nullable=False),
        column(
            "filter_bit_map",
            pa.binary(),
            "Bloom filter over the groups whose expression matched; null without filter data",
        ),
        column("store_date", pa.date32(), "day of store_timestamp, UTC"),
        column("run", pa.string(), "the run that wrote the entry", nullable=False),
    ],
    constraints={"queue_offset_not_negative": "queue_offset >= 0"},
    statistics_on=("topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "run"),
    dictionary_encoded=("topic", "queue_id", "size", "tags_code", "store_date", "run"),
    delta_encoded=("queue_offset", "commitlog_offset", "store_timestamp"),
)

IN_LMQS = within("topic", LMQ_PREFIX, f"{LMQ_PREFIX[:-1]}&")
"""The entries in LMQs: & is the character after %."""
