"""Who got which message, kept so that groups which got the same ones share their bytes.

A row of ``delivery_blocks`` is a run of messages of one queue: their offsets once, and for each set
of groups that received the same of them, the positions in the run. Readers see one row a pair.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.table import Table
from schemas.warehouse import Warehouse

BLOCK_TYPES = (
    "broker_name string, topic string, queue_id int, store_date date, queue_offset array<bigint>, "
    "commitlog_offset array<bigint>, matches array<struct<consumer_group: array<string>, outcome: string, "
    "positions: array<int>>>, counts array<struct<consumer_group: string, passed_stage1: bigint, "
    "passed_stage2: bigint, delivered: bigint, dropped_by_hook: bigint, bit_map_false_positives: bigint, "
    "evaluation_errors: bigint>>"
)
"""What deliver makes."""

DELIVERY_BLOCKS = Table(
    "delivery_blocks",
    "Deliveries by runs of messages of one queue; schemas.deliveries.read gives one row a pair.",
    """
    broker_name STRING NOT NULL,
    topic STRING NOT NULL,
    queue_id INT NOT NULL,
    store_date DATE NOT NULL COMMENT 'UTC day of the first message of the run',
    queue_offset ARRAY<BIGINT> NOT NULL,
    commitlog_offset ARRAY<BIGINT> NOT NULL COMMENT 'of the same messages, in the same order',
    matches ARRAY<STRUCT<
        consumer_group: ARRAY<STRING> COMMENT 'groups that got the same messages of the run',
        outcome: STRING COMMENT
            'DELIVERED, or after the broker returned it: DROPPED_BY_CLIENT (tag check), DROPPED_BY_HOOK (filter hook)',
        positions: ARRAY<INT> COMMENT 'indices into queue_offset; null: every message of the run'
    >> NOT NULL,
    counts ARRAY<STRUCT<
        consumer_group: STRING, passed_stage1: BIGINT, passed_stage2: BIGINT, delivered: BIGINT,
        dropped_by_hook: BIGINT,
        bit_map_false_positives: BIGINT, evaluation_errors: BIGINT
    >> NOT NULL COMMENT 'of every group of the topic, for the run'
    """,
    cluster_by=("broker_name", "topic", "store_date"),
    statistics_on=("broker_name", "topic", "queue_id", "store_date"),
)


def read(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """One row a pair: consumer_group, broker_name, topic, queue_id, queue_offset, commitlog_offset, outcome."""
    return pairs(DELIVERY_BLOCKS.read(spark, warehouse))


def pairs(blocks: DataFrame) -> DataFrame:
    """The pairs of some rows of delivery_blocks; filter blocks by topic or day before, groups after."""
    messages = F.arrays_zip("queue_offset", "commitlog_offset")
    # The arrays of offsets stay out of the explode, which would copy them for every match.
    shared = F.transform(
        "matches",
        lambda match: F.struct(
            match["consumer_group"].alias("groups"),
            match["outcome"].alias("outcome"),
            F.when(match["positions"].isNull(), messages)
            .otherwise(
                F.transform(
                    match["positions"],
                    lambda position: F.struct(
                        F.get("queue_offset", position).alias("queue_offset"),
                        F.get("commitlog_offset", position).alias("commitlog_offset"),
                    ),
                )
            )
            .alias("messages"),
        ),
    )
    return (
        blocks.select("broker_name", "topic", "queue_id", F.explode(shared).alias("match"))
        .select("*", F.explode("match.groups").alias("consumer_group"))
        .select("*", F.explode("match.messages").alias("message"))
        .select(
            "consumer_group", "broker_name", "topic", "queue_id", "message.queue_offset", "message.commitlog_offset",
            "match.outcome",
        )
    )  # fmt: skip


def stats(blocks: DataFrame, run: str) -> DataFrame:
    """The rows of delivery_stats for blocks: their counts, summed by group and queue."""
    counted = blocks.select(
        "broker_name", "topic", "queue_id", F.size("queue_offset").alias("scanned"), F.inline("counts")
    )
    sums = (
        "scanned", "passed_stage1", "passed_stage2", "delivered", "dropped_by_hook", "bit_map_false_positives",
        "evaluation_errors",
    )  # fmt: skip
    summed = counted.groupBy("broker_name", "consumer_group", "topic", "queue_id").agg(
        *(F.sum(name).cast("bigint").alias(name) for name in sums)
    )
    return summed.select(
        F.lit(run).alias("run"), "broker_name", "consumer_group", "topic", "queue_id", *sums,
        (F.col("passed_stage2") - F.col("delivered") - F.col("dropped_by_hook")).alias("hash_collisions"),
    )  # fmt: skip
