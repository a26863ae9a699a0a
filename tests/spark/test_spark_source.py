"""The Spark data source ``mqsieve``: a table of a warehouse by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import mqsieve.spark
from schemas import deliveries
from schemas.delta.warehouse import Warehouse


def test_deliveries_are_those_that_spark_reads_from_delta(
    spark: SparkSession, replayed: Callable[[str], Warehouse]
) -> None:
    warehouse = replayed("small")
    mqsieve.spark.register(spark)
    frame = spark.read.format("mqsieve").option("table", "deliveries").load(warehouse.location)
    expected = deliveries.read(spark, warehouse).select(frame.columns)
    assert frame.count() > 0
    assert_df_equality(frame, expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def test_an_empty_table_has_no_rows(spark: SparkSession, replayed: Callable[[str], Warehouse]) -> None:
    mqsieve.spark.register(spark)
    frame = spark.read.format("mqsieve").option("table", "quarantine").load(replayed("small").location)
    assert (frame.count(), "reason" in frame.columns) == (0, True)


def test_what_cannot_be_read_says_so(spark: SparkSession, tmp_path: Path) -> None:
    mqsieve.spark.register(spark)
    source = spark.read.format("mqsieve")
    with pytest.raises(AnalysisException, match="there is no table message; there are deliveries, "):
        source.option("table", "message").load(str(tmp_path)).count()
    with pytest.raises(AnalysisException, match="has no night yet"):
        spark.read.format("mqsieve").load(str(tmp_path)).count()
