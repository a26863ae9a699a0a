"""Readers see one row a pair, however the messages of a block are kept."""

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from schemas.deliveries import DELIVERY_BLOCKS, pairs_of
from schemas.spark_views import pairs

MESSAGES = 1 << 16
KEPT: dict[str, dict[str, object]] = {
    "few": {"messages": 5, "positions": [0, 1, 2, 8, 9], "bits": None},
    "far": {"messages": 1, "positions": [65535], "bits": None},
    "none": {"messages": 0, "positions": [], "bits": None},
    "many": {"messages": 4, "positions": None, "bits": [0b1000000001 | -(1 << 63), *[0] * 1022, -(1 << 63)]},
    "all": {"messages": MESSAGES, "positions": None, "bits": None},
}
EXPECTED: dict[str, Sequence[int]] = {
    "few": [0, 1, 2, 8, 9], "far": [65535], "none": [], "many": [0, 9, 63, 65535], "all": range(MESSAGES),
}  # fmt: skip


def block(kept: dict[str, dict[str, object]], messages: int) -> pa.Table:
    matches = [
        {
            "outcome": "DELIVERED",
            **how,
            "recipients": [
                {"consumer_group": name, "subscription_from": 7, "available_at": None},
                {"consumer_group": f"{name}, too", "subscription_from": 8, "available_at": 9},
            ],
        }
        for name, how in kept.items()
    ]
    row = {
        "topic": "T", "first_store_timestamp": 50, "last_store_timestamp": 50 + messages, "messages": messages,
        "queue_id": [3] * messages, "queue_offset": [100 + i for i in range(messages)],
        "commitlog_offset": [1000 + 50 * i for i in range(messages)],
        "store_timestamp": [50 + i for i in range(messages)], "matches": matches, "run": "r",
    }  # fmt: skip
    return pa.Table.from_batches([DELIVERY_BLOCKS.rows_batch([row])])


def by_spark(spark: SparkSession, blocks: pa.Table) -> dict[str, list[tuple[object, ...]]]:
    with_broker = blocks.append_column("broker_name", pa.array(["b"] * len(blocks)))
    deliveries_of: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for row in pairs(spark.createDataFrame(with_broker)).collect():
        deliveries_of[row["consumer_group"]].append(
            (row["queue_offset"], row["commitlog_offset"], row["available_at"], row["subscription_from"])
        )
    return deliveries_of


def by_arrow(blocks: pa.Table) -> dict[str, list[tuple[object, ...]]]:
    deliveries_of: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for batch in pairs_of(blocks):
        for row in batch.to_pylist():
            deliveries_of[row["consumer_group"]].append(
                (row["queue_offset"], row["commitlog_offset"], row["available_at"], row["subscription_from"])
            )
    return deliveries_of


@pytest.mark.parametrize("reader", ["spark", "arrow"])
def test_every_way_to_keep_a_block(spark: SparkSession, reader: str) -> None:
    blocks = block(KEPT, MESSAGES)
    by_group = by_spark(spark, blocks) if reader == "spark" else by_arrow(blocks)
    for name, positions in EXPECTED.items():
        assert sorted(by_group[name]) == [(100 + i, 1000 + 50 * i, 50 + i, 7) for i in positions]
        assert sorted(by_group[f"{name}, too"]) == [(100 + i, 1000 + 50 * i, 9, 8) for i in positions]


@pytest.mark.parametrize("reader", ["spark", "arrow"])
def test_a_block_of_odd_length(spark: SparkSession, reader: str) -> None:
    blocks = block({"all": {"messages": 70, "positions": None, "bits": None}}, 70)
    by_group = by_spark(spark, blocks) if reader == "spark" else by_arrow(blocks)
    assert len(by_group["all"]) == 70
