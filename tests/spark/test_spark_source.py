"""The Spark data source ``mqsieve``: a table of a warehouse by its path."""

from __future__ import annotations

from collections.abc import Callable

from chispa import assert_df_equality
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
