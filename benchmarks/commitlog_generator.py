"""A Delta commitlog of any size, made by Spark in parallel: the messages of the bench workload."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.workload import CHANNELS, COLORS, LEVELS, MISSING, REGIONS
from schemas.commitlog import COMMITLOG
from schemas.delta.warehouse import Warehouse

BROKER, TOPIC, QUEUES = "broker-a", "OrderEvents", 8
FIRST_STORE_TIMESTAMP = 1_790_000_000_000
MESSAGES_A_DAY = 2_000_000
RECORD_SIZE = 400
MESSAGES_IN_A_FILE = 500_000


def messages(spark: SparkSession, count: int, seed: int) -> DataFrame:
    """``count`` messages with eight properties each, spread over QUEUES queues, two million a day."""
    number = F.col("id")

    def one_of(values: list[str], salt: int) -> Column:
        listed = F.array(*(F.lit(value) for value in values))
        return F.get(listed, F.floor(F.rand(seed + salt) * len(values)).cast("int"))

    def sometimes(value: Column, salt: int) -> Column:
        return F.when(F.rand(seed + salt) >= MISSING, value)

    properties = {
        "region": one_of(REGIONS, 1),
        "price": F.format_string("%.2f", F.rand(seed + 2) * 1000),
        "qty": F.floor(F.rand(seed + 3) * 501).cast("string"),
        "level": one_of(LEVELS, 4),
        "userId": F.floor(F.rand(seed + 5) * 1_000_000).cast("string"),
        "color": sometimes(one_of(COLORS, 6), 7),
        "channel": sometimes(one_of(CHANNELS, 8), 9),
        "flag": sometimes(F.when(F.rand(seed + 10) < 0.5, "true").otherwise("false"), 11),
    }
    pairs = F.array(*(F.struct(F.lit(name).alias("k"), value.alias("v")) for name, value in properties.items()))
    present = F.map_from_entries(F.filter(pairs, lambda pair: pair["v"].isNotNull()))
    parallel = max(1, count // MESSAGES_IN_A_FILE)
    return spark.range(0, count, 1, parallel).select(
        F.lit(BROKER).alias("broker_name"),
        (number * RECORD_SIZE).alias("commitlog_offset"),
        F.lit(TOPIC).alias("topic"),
        (number % QUEUES).cast("int").alias("queue_id"),
        F.expr(f"id DIV {QUEUES}").alias("queue_offset"),
        F.lit(RECORD_SIZE).alias("store_size"),
        F.lit(0).alias("sys_flag"),
        (FIRST_STORE_TIMESTAMP + F.expr(f"id * 86400000 DIV {MESSAGES_A_DAY}")).alias("store_timestamp"),
        present.alias("properties"),
    )


def write(spark: SparkSession, warehouse: Warehouse, count: int, seed: int = 1) -> None:
    """A warehouse whose commitlog holds ``count`` messages."""
    COMMITLOG.append(messages(spark, count, seed), warehouse)
