"""Who got which message, kept so that groups which got the same ones share their bytes.

A row of ``delivery_blocks`` is a run of messages of one queue: their offsets once, and for each set
of groups that received the same of them, which. Readers see one row a pair.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.table import Table
from schemas.warehouse import Warehouse

BLOCK_TYPES = (
    "broker_name string, topic string, queue_id int, store_date date, queue_offset bigint, messages int, "
    "commitlog_offset array<bigint>, matches array<struct<consumer_group: array<string>, outcome: string, "
    "positions: binary, bits: binary>>, counts array<struct<consumer_group: string, passed_stage1: bigint, "
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
    store_date DATE NOT NULL COMMENT 'UTC day of the messages',
    queue_offset BIGINT NOT NULL COMMENT 'of the first message of the run; the others follow without a gap',
    messages INT NOT NULL COMMENT 'of the run',
    commitlog_offset ARRAY<BIGINT> NOT NULL COMMENT 'of each message',
    matches ARRAY<STRUCT<
        consumer_group: ARRAY<STRING> COMMENT 'groups that got the same messages of the run',
        outcome: STRING COMMENT
            'DELIVERED, or after the broker returned it: DROPPED_BY_CLIENT (tag check), DROPPED_BY_HOOK (filter hook)',
        positions: BINARY COMMENT 'which messages of the run, from 0, where they are few: two octets each, big-endian',
        bits: BINARY COMMENT 'the same where they are many: bit i % 8 of octet i / 8; both null: every message'
    >> NOT NULL,
    counts ARRAY<STRUCT<
        consumer_group: STRING, passed_stage1: BIGINT, passed_stage2: BIGINT, delivered: BIGINT,
        dropped_by_hook: BIGINT, bit_map_false_positives: BIGINT, evaluation_errors: BIGINT
    >> NOT NULL COMMENT 'of every group of the topic, for the run'
    """,
    partition_by=("broker_name",),
    statistics_on=("topic", "queue_id", "store_date"),
)


def read(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """One row a pair: consumer_group, broker_name, topic, queue_id, queue_offset, commitlog_offset, outcome."""
    return pairs(DELIVERY_BLOCKS.read(spark, warehouse))


def pairs(blocks: DataFrame) -> DataFrame:
    """The pairs of some rows of delivery_blocks.

    A filter on consumer_group reaches the runs before they are spread out.
    """
    run = ("broker_name", "topic", "queue_id")
    of_groups = (
        blocks.select("*", F.explode("matches").alias("match"))
        .select(
            *run, "queue_offset", "messages", "commitlog_offset", "match.outcome", "match.positions", "match.bits",
            F.explode("match.consumer_group").alias("consumer_group"),
        )
    )  # fmt: skip
    every = F.sequence(F.lit(0), F.col("messages") - 1)
    some = F.when(F.col("positions").isNotNull(), _positions()).when(F.col("bits").isNotNull(), _positions_of_bits())

    def message(position: Column) -> Column:
        return F.struct(
            (F.col("queue_offset") + position).alias("queue_offset"),
            F.get("commitlog_offset", position).alias("commitlog_offset"),
        )

    # Looked up before they are spread out: a run's offsets are not carried along with each of its pairs.
    received = F.transform(F.coalesce(some, every), message)
    return of_groups.select("consumer_group", *run, "outcome", F.inline(received)).select(
        "consumer_group", *run, "queue_offset", "commitlog_offset", "outcome"
    )


def _unsigned(column: str, at: Column, octets: int) -> Column:
    """The number in some octets of a binary column, big-endian; ``at`` is from 0."""
    return F.conv(F.hex(F.substring(column, at + 1, F.lit(octets))), 16, 10).cast("int")


def _positions() -> Column:
    count = (F.octet_length("positions") / 2).cast("int")
    numbers = F.filter(F.sequence(F.lit(0), count), lambda number: number < count)
    return F.transform(numbers, lambda number: _unsigned("positions", number * 2, 2))


def _positions_of_bits() -> Column:
    def positions(octet: Column, at: Column) -> Column:
        each = (F.when(octet.bitwiseAND(1 << bit) != 0, at * 8 + bit) for bit in range(8))
        return F.array_compact(F.array(*each))

    octets = F.transform(F.sequence(F.lit(0), F.octet_length("bits") - 1), lambda at: _unsigned("bits", at, 1))
    return F.flatten(F.transform(octets, positions))


def stats(blocks: DataFrame, run: str) -> DataFrame:
    """The rows of delivery_stats for blocks: their counts, summed by group and queue."""
    counted = blocks.select("broker_name", "topic", "queue_id", F.col("messages").alias("scanned"), F.inline("counts"))
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
