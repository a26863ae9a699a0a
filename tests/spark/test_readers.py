"""Spark reads the same rows as PyArrow does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from answers import warehouse as door
from answers.export import Selection, batches_of
from schemas import commitlog, deliveries
from schemas.tables import TABLES
from tests.nights.commands import rows_of
from tests.replayed import Replayed


def texts(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=repr) for row in rows)


@pytest.mark.parametrize("name", ["small", "plain"])
def test_messages(spark: SparkSession, replayed: Replayed, name: str) -> None:
    rows = commitlog.read(spark, replayed(name)).drop("body")
    by_spark = (row.asDict(recursive=True) for row in rows.collect())
    assert texts(by_spark) == texts(rows_of(replayed(name), "commitlog", *rows.columns))


@pytest.mark.parametrize("name", ["small", "dev"])
def test_deliveries(spark: SparkSession, replayed: Replayed, name: str) -> None:
    by_arrow = pa.Table.from_batches(batches_of(replayed(name), "deliveries", Selection()))
    by_spark = deliveries.read(spark, replayed(name))
    expected = spark.createDataFrame(by_arrow).select(by_spark.columns)
    assert_df_equality(by_spark, expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def test_every_table_is_a_delta_table_that_spark_and_delta_rs_read(spark: SparkSession, replayed: Replayed) -> None:
    warehouse = replayed("small")
    counts = []
    for table in TABLES:
        path = warehouse.log(table).storage.root
        rows = spark.read.format("delta").load(path)
        count = DeltaTable(path).to_pyarrow_dataset().count_rows()
        counts.append(rows.selectExpr(f"'{table.name}' AS name", f"count(*) = {count} AS is_same"))
        assert rows.columns == table.schema.names
        comments = {field.name: field.metadata.get("comment") for field in rows.schema}
        for column in table.schema:
            expected_comment = (column.metadata or {}).get(b"comment", b"").decode() or None
            assert comments[column.name] == expected_comment, (table.name, column.name)
    assert reduce(DataFrame.unionAll, counts).where("NOT is_same").collect() == []


def test_a_filter_on_the_group_comes_before_its_messages_are_spread_out(
    spark: SparkSession, replayed: Replayed, capsys: pytest.CaptureFixture[str]
) -> None:
    deliveries.read(spark, replayed("small")).where("consumer_group = 'few'").explain("extended")
    plan = capsys.readouterr().out.split("== Optimized Logical Plan ==")[1]
    spread = plan.index("Generate explode(")
    assert plan.index("Filter (isnotnull(consumer_group") < plan.rindex("Generate inline")
    assert spread >= 0


def test_the_door_gives_data_frames_of_spark(spark: SparkSession, replayed: Replayed) -> None:
    mqsieve = door.open(replayed("small").location)
    group = mqsieve.deliveries.of(group="cg_sql_region_price", topic="OrderEvents")
    messages = mqsieve.messages.to_spark(spark).select("broker_name", "commitlog_offset", "keys", "store_timestamp_utc")
    joined = group.to_spark(spark).join(messages, ["broker_name", "commitlog_offset"])
    answer = joined.selectExpr("keys", "unix_millis(available_at_utc)", "unix_millis(store_timestamp_utc)").collect()
    frame = mqsieve.messages.to_pandas().merge(group.to_pandas(), on=["broker_name", "commitlog_offset"])
    assert len(answer) == 21
    expected = frame[["keys", "available_at", "store_timestamp"]].itertuples(index=False, name=None)
    assert Counter(map(tuple, answer)) == Counter(expected)
    assert (frame["available_at_utc"].astype("int64") == frame["available_at"]).all()
    assert mqsieve.entries.to_spark(spark).count() == 739
    lags = mqsieve.lag()
    rows = lags.to_spark(spark)
    assert [tuple(row) for row in rows.select("consumer_group", "behind").collect()] == [
        (lag.consumer_group, lag.behind) for lag in lags
    ]
    assert mqsieve.findings().to_spark(spark).columns == mqsieve.findings().to_pandas().columns.to_list()
