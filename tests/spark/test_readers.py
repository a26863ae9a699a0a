"""Spark reads the same rows as PyArrow does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from schemas import commitlog, deliveries
from schemas.delta.warehouse import Warehouse
from schemas.tables import TABLES
from tests.nights.commands import rows_of

Replayed = Callable[[str], Warehouse]


def texts(rows: DataFrame) -> Counter[str]:
    return Counter(json.dumps(row.asDict(recursive=True), sort_keys=True, default=repr) for row in rows.collect())


def expected(warehouse: Warehouse, name: str, columns: list[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows_of(warehouse, name, *columns):
        body = row.get("body")
        if isinstance(body, bytes):
            row["body"] = bytearray(body)
        found[json.dumps(row, sort_keys=True, default=repr)] += 1
    return found


@pytest.mark.parametrize("name", ["small", "plain"])
def test_messages(spark: SparkSession, replayed: Replayed, name: str) -> None:
    rows = commitlog.read(spark, replayed(name)).drop("body")
    assert texts(rows) == expected(replayed(name), "commitlog", rows.columns)


@pytest.mark.parametrize("name", ["small", "dev"])
def test_deliveries(spark: SparkSession, replayed: Replayed, name: str) -> None:
    rows = deliveries.read(spark, replayed(name))
    assert texts(rows) == expected(replayed(name), "deliveries", rows.columns)


def test_every_table_is_a_delta_table_that_spark_and_delta_rs_read(spark: SparkSession, replayed: Replayed) -> None:
    warehouse = replayed("small")
    for table in TABLES:
        path = warehouse.log(table).storage.root
        rows = spark.read.format("delta").load(path)
        assert rows.count() == DeltaTable(path).to_pyarrow_dataset().count_rows(), table.name
        assert rows.columns == table.schema.names
        comments = {field.name: field.metadata.get("comment") for field in rows.schema}
        for column in table.schema:
            expected_comment = (column.metadata or {}).get(b"comment", b"").decode() or None
            assert comments[column.name] == expected_comment, (table.name, column.name)


def test_a_filter_on_the_group_comes_before_its_messages_are_spread_out(
    spark: SparkSession, replayed: Replayed, capsys: pytest.CaptureFixture[str]
) -> None:
    deliveries.read(spark, replayed("small")).where("consumer_group = 'few'").explain("extended")
    plan = capsys.readouterr().out.split("== Optimized Logical Plan ==")[1]
    spread = plan.index("Generate explode(")
    assert plan.index("Filter (isnotnull(consumer_group") < plan.rindex("Generate inline")
    assert spread >= 0
