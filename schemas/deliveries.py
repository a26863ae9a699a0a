"""Which group received which message, when, and by which subscription.

The files store blocks (:mod:`filtering.delivery.delivery_blocks`): some messages of one topic, and for each set of
groups that received the same messages, which messages these are. Readers see one row per pair of message and group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from filtering.delivery.block_schema import MATCH
from schemas.delta.table import Table, column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from schemas.delta.warehouse import Warehouse

_MATCH = "matches.list.element"
_RECIPIENT = f"{_MATCH}.recipients.list.element"

DELIVERY_BLOCKS = Table(
    "delivery_blocks",
    "Deliveries in blocks of messages of one topic; schemas.deliveries.read gives one row per message and group.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("first_store_timestamp", pa.int64(), "least store_timestamp of the messages, ms", nullable=False),
        column("last_store_timestamp", pa.int64(), "greatest store_timestamp of the messages, ms", nullable=False),
        column("messages", pa.int32(), "number of messages in the block", nullable=False),
        column("queue_id", pa.list_(pa.int32()), "one for each message", nullable=False),
        column("queue_offset", pa.list_(pa.int64()), "one for each message", nullable=False),
        column("commitlog_offset", pa.list_(pa.int64()), "one for each message", nullable=False),
        column("store_timestamp", pa.list_(pa.int64()), "one for each message, ms", nullable=False),
        column(
            "matches",
            pa.list_(MATCH),
            "one for each set of groups that received the same messages: the outcome, DELIVERED, or for messages "
            "that the broker returned DROPPED_BY_CLIENT (tag check) or DROPPED_BY_HOOK (filter hook); the number "
            "of messages; the groups, with the valid_from of the subscription and when they could first pull "
            "(null: when stored); the messages, numbered from 0, as positions or as bits (message i is bit i % 64 "
            "of word i DIV 64); if both are null, all messages",
            nullable=False,
        ),
        column("run", pa.string(), "the run that decided the deliveries", nullable=False),
    ],
    statistics_on=("topic", "first_store_timestamp", "last_store_timestamp", "run"),
    dictionary_encoded=(
        "topic",
        "run",
        "queue_id.list.element",
        f"{_MATCH}.outcome",
        f"{_RECIPIENT}.consumer_group",
        f"{_RECIPIENT}.subscription_from",
        f"{_RECIPIENT}.available_at",
    ),
    delta_encoded=(
        "queue_offset.list.element",
        "commitlog_offset.list.element",
        "store_timestamp.list.element",
        f"{_MATCH}.messages",
        f"{_MATCH}.positions.list.element",
    ),
)


def read(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """The deliveries as a DataFrame, one row per pair of message and group.

    Columns: consumer_group, broker_name, topic, queue_id, queue_offset, commitlog_offset, outcome, available_at (ms,
    when the group could first pull the message), subscription_from (valid_from of the subscription that filtered it)
    and run.
    """
    from schemas.spark_views import pairs

    return pairs(warehouse.read(spark, DELIVERY_BLOCKS))
