"""The pipeline in Spark SQL computes what the nights of real brokers stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs import audit, nightly
from jobs.cli.application import CheckFailed
from schemas import deliveries, spark_pipeline
from schemas.delta.warehouse import Warehouse
from tests.captures import UNDAMAGED, capture
from tests.depth import DEEP
from tests.nights.commands import NIGHTS, night
from tests.nights.damage import copy_of, rewrite
from tests.replayed import Replayed

MESSAGE_COLUMNS = ("queue_offset", "commitlog_offset", "available_at")


def by_queue(rows: DataFrame) -> DataFrame:
    """A row for each group and queue, with its messages as an array: there are 150,946 deliveries of all captures."""
    key = [name for name in rows.columns if name not in MESSAGE_COLUMNS]
    return rows.groupBy(key).agg(F.sort_array(F.collect_list(F.struct(*MESSAGE_COLUMNS))).alias("messages"))


def configuration(folder: Path, capture_name: str, *changed: str) -> Path:
    """A capture's broker.conf with some lines changed, and a brokerName of its own: one warehouse has all brokers."""
    name = " ".join([capture_name, *changed])
    changed = f"brokerName={name}", *changed
    keys = tuple(line.partition("=")[0] for line in changed)
    text = (capture(capture_name) / "broker.conf").read_text("utf-8")
    file = folder / f"{name}.conf"
    file.write_text("\n".join([*changed, *(line for line in text.splitlines() if not line.startswith(keys))]), "utf-8")
    return file


def test_deliveries_of_several_brokers(spark: SparkSession, tmp_path: Path) -> None:
    """Groups pop from pop_dev, which writes it down; with the database it forgets, and what they get is planned."""
    folders = [
        (capture(name), configuration(tmp_path, name)) for name in (UNDAMAGED if DEEP else ("small", "otherbloom"))
    ]
    for name, numbers, *changed in (
        ("nights_dev", NIGHTS),
        ("pop_dev", NIGHTS if DEEP else (2,)),
        ("pop_dev", NIGHTS if DEEP else (), "popConsumerKVServiceEnable=true"),
    ):
        config = configuration(tmp_path, name, *changed)
        folders += [(capture(name) / f"night_{number}", config) for number in numbers]
    for folder, config in folders:
        nightly.main(night(tmp_path / "w", folder / "store", folder / "subscription_events.jsonl", config))
    warehouse = Warehouse.at(str(tmp_path / "w"))
    stored = by_queue(deliveries.read(spark, warehouse)).cache()
    computed = by_queue(spark_pipeline.deliveries(spark, warehouse)).select(stored.columns)
    assert stored.select("broker_name", "run").distinct().count() == len(folders)
    assert_df_equality(computed, stored, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)
    stored.unpersist()


@pytest.mark.usefixtures("spark")
def test_an_audit_says_what_spark_computes_otherwise(
    replayed: Replayed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    rewrite(warehouse, deliveries.DELIVERY_BLOCKS, lambda blocks: blocks[1:])
    with pytest.raises(CheckFailed, match=r"audits failed: spark_computes_the_deliveries$"):
        audit.main(["--warehouse", str(tmp_path / "w"), "--engine", "spark"])
    out = capsys.readouterr().out
    assert "spark_computes_the_entries     ok" in out
    assert "missing" in out
