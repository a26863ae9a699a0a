"""The matcher over any DataFrame."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from mqsieve.spark import match
from schemas.errors import UsageError

SUBSCRIPTIONS = {"cg_expensive": "price > 50.0", "cg_all": "price IS NOT NULL", "cg_without": "price IS NULL"}


def test_rows_have_the_groups_that_match(spark: SparkSession) -> None:
    orders = spark.createDataFrame(
        [(1, {"price": "60"}), (2, {"price": "x"}), (3, {}), (4, None)], "id INT, attributes MAP<STRING, STRING>"
    )
    frame = match(orders, SUBSCRIPTIONS, properties="attributes")
    assert frame.columns == ["id", "attributes", "groups"]
    assert {row["id"]: row["groups"] for row in frame.collect()} == {
        1: ["cg_expensive", "cg_all"], 2: ["cg_all"], 3: ["cg_without"], 4: ["cg_without"],
    }  # fmt: skip
    with pytest.raises(UsageError, match="must be a column with a map"):
        match(orders, SUBSCRIPTIONS)
    with pytest.raises(UsageError, match=r"^cg_bad: "):
        match(orders, {"cg_bad": "price >"}, properties="attributes")
