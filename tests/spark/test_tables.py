"""Tables read fast: a topic's day is in few files, a night leaves no small ones, and old versions stay readable."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs import nightly
from schemas import deliveries, local_files
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.warehouse import Warehouse

TOPICS, DAYS, MESSAGES = 4, 2, 4_000
FIRST_DAY = "2026-09-21"
BEGIN = 1_789_948_800_000
SUBSCRIPTIONS = "".join(f"- {{group: g, topic: T{i}, sql: number >= 10}}\n" for i in range(TOPICS))


def night(folder: Path, spark: SparkSession, day: int) -> Warehouse:
    """The messages of a day, added to those of the days before."""
    log = folder / "log"
    number = F.col("id")
    messages = spark.range(day * MESSAGES, (day + 1) * MESSAGES).select(
        (number * 100).alias("commitlog_offset"),
        F.concat(F.lit("T"), number % TOPICS).alias("topic"),
        F.lit(0).alias("queue_id"),
        F.expr(f"id DIV {TOPICS}").alias("queue_offset"),
        (BEGIN + F.expr(f"id * 86400000 DIV {MESSAGES}")).alias("store_timestamp"),
        F.create_map(F.lit("number"), number.cast("string")).alias("properties"),
    )
    messages.coalesce(1).write.mode("append").parquet(str(log))
    (folder / "subscriptions.yaml").write_text(SUBSCRIPTIONS)
    nightly.main(
        ["--store", str(log), "--subscriptions", str(folder / "subscriptions.yaml"), "--warehouse", str(folder / "w")]
    )
    return Warehouse.at(str(folder / "w"))


def files(rows: DataFrame) -> int:
    return len(rows.inputFiles())


def test_two_nights(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = night(tmp_path, spark, 0)
    assert files(CONSUMEQUEUE.read(spark, warehouse)) == 1, "small files"
    # Large tables have many files: this makes small ones of them.
    monkeypatch.setattr(local_files, "ROWS_IN_A_TASK", MESSAGES // 8)
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        warehouse = night(tmp_path, spark, 1)
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")

    of_topic = "topic = 'T1'"
    of_day = f"store_date = DATE'{FIRST_DAY}'"
    for table in (CONSUMEQUEUE, DELIVERY_BLOCKS):
        rows = table.read(spark, warehouse)
        every, topic, day = files(rows), files(rows.where(of_topic)), files(rows.where(f"{of_topic} AND {of_day}"))
        assert day <= topic <= every / 2, (table.name, every, topic, day)
    log = COMMITLOG.read(spark, warehouse)
    assert files(log.where(of_day)) == 1 < files(log)

    assert deliveries.read(spark, warehouse).count() == DAYS * MESSAGES - 10
    earlier = spark.sql(f"SELECT * FROM {warehouse.identifier(DELIVERY_BLOCKS.name)} VERSION AS OF 1")
    assert deliveries.pairs(earlier).count() == MESSAGES - 10
    ledger = spark.table(warehouse.identifier("run_ledger")).where("job = 'deliver'").orderBy("run").collect()
    assert [row["output_versions"][DELIVERY_BLOCKS.name] for row in ledger] == [1, 2]
