"""The consume queue entries that the broker derives from its commitlog, and what filters read at a pull."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.table import Table

ENTRY_TYPES = (
    "broker_name string, topic string, queue_id int, queue_offset bigint, commitlog_offset bigint, size int, "
    "tags_code bigint, store_timestamp bigint, filter_bit_map binary, properties map<string, string>"
)
"""What dispatch makes; store_date follows from store_timestamp."""

CONSUMEQUEUE = Table(
    "consumequeue",
    "Consume queue entries with their extension. Key: broker_name, topic, queue_id, queue_offset.",
    """
    broker_name STRING NOT NULL,
    topic STRING NOT NULL,
    queue_id INT NOT NULL,
    queue_offset BIGINT NOT NULL,
    commitlog_offset BIGINT NOT NULL,
    size INT NOT NULL COMMENT 'bytes of the record in the commitlog',
    tags_code BIGINT NOT NULL COMMENT 'hash of the tag; in SCHEDULE_TOPIC_XXXX the delivery time in ms',
    store_timestamp BIGINT NOT NULL COMMENT 'ms since the epoch',
    filter_bit_map BINARY COMMENT 'Bloom filter over the groups whose expression matched; null without filter data',
    properties MAP<STRING, STRING> COMMENT 'of the message: what stage 2 and the client read',
    store_date DATE
        GENERATED ALWAYS AS (date_add(DATE'1970-01-01', CAST(store_timestamp DIV 86400000 AS INT)))
        COMMENT 'day of store_timestamp, UTC'
    """,
    partition_by=("broker_name",),
    constraints={"queue_offset_not_negative": "queue_offset >= 0"},
    statistics_on=(
        "topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "store_date",
    ),
)  # fmt: skip


def log_end(entries: DataFrame) -> int:
    """When the last message of some rows of consumequeue was stored, in ms; 0 where there is none."""
    (end,) = entries.agg(F.max("store_timestamp").alias("at")).collect()
    return end["at"] or 0
