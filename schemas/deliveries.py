"""Who got which message, kept so that groups which got the same ones share their bytes.

A row of ``delivery_blocks`` is a run of messages of one queue: their offsets once, and for each set
of groups that received the same of them, which. Readers see one row a pair.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from filtering.replay.block_matches import POSITIONS_IN_A_WORD
from schemas.table import Table
from schemas.warehouse import Warehouse

BLOCK_TYPES = (
    "broker_name string, topic string, queue_id int, store_date date, queue_offset bigint, messages int, "
    "commitlog_offset array<bigint>, matches array<struct<consumer_group: array<string>, outcome: string, "
    "messages: int, positions: array<bigint>, bits: array<bigint>>>, counts array<struct<consumer_group: string, "
    "passed_stage1: bigint, passed_stage2: bigint, delivered: bigint, dropped_by_hook: bigint, "
    "bit_map_false_positives: bigint, evaluation_errors: bigint>>"
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
        messages: INT COMMENT 'of the run that they got',
        positions: ARRAY<BIGINT> COMMENT
            'which, from 0, where they are few: 16 bits each, four a word, the lowest first',
        bits: ARRAY<BIGINT> COMMENT
            'the same where they are many: message i is bit i % 64 of word i DIV 64; both null: every message'
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
            F.col("match.messages").alias("received"), F.explode("match.consumer_group").alias("consumer_group"),
        )
    )  # fmt: skip
    # Loops over words and over what is in a word, so that Spark compiles them and no run's offsets are copied.
    every = F.expr("array_repeat(-1L, CAST((messages + 63) DIV 64 AS INT))")
    few = F.col("positions").isNotNull()
    words = of_groups.select("*", F.posexplode(F.coalesce("positions", "bits", every)).alias("at", "word"))
    parts = F.when(few, _numbers(POSITIONS_IN_A_WORD)).otherwise(_numbers(64))
    spread = words.select("*", F.explode(parts).alias("n"))
    number = F.col("at") * F.when(few, POSITIONS_IN_A_WORD).otherwise(64) + F.col("n")
    is_set = (number < F.col("messages")) & F.expr("shiftright(word, n) & 1 = 1")
    position = F.when(few, F.expr("CAST(shiftright(word, 16 * n) & 65535 AS INT)")).otherwise(number)
    return spread.where(F.when(few, number < F.col("received")).otherwise(is_set)).select(
        "consumer_group", *run, (F.col("queue_offset") + position).alias("queue_offset"),
        F.get("commitlog_offset", position).alias("commitlog_offset"), "outcome",
    )  # fmt: skip


def _numbers(count: int) -> Column:
    return F.array(*(F.lit(number) for number in range(count)))


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
