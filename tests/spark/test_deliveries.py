"""Readers see one row a pair, however the messages of a run are kept."""

from collections import defaultdict
from datetime import date

import pytest
from pyspark.sql import SparkSession

from schemas import deliveries
from schemas.deliveries import BLOCK_TYPES

pytestmark = pytest.mark.spark
KEPT = {
    "few": {"messages": 5, "positions": [0 | 1 << 16 | 2 << 32 | 8 << 48, 9], "bits": None},
    "far": {"messages": 1, "positions": [65535], "bits": None},
    "none": {"messages": 0, "positions": [], "bits": None},
    "many": {"messages": 4, "positions": None, "bits": [0b1000000001 | -(1 << 63), *[0] * 1022, -(1 << 63)]},
    "all": {"messages": 1 << 16, "positions": None, "bits": None},
}
MESSAGES = 1 << 16
EXPECTED = {"few": [0, 1, 2, 8, 9], "far": [65535], "none": [], "many": [0, 9, 63, 65535], "all": range(MESSAGES)}


def test_every_way_to_keep_a_run(spark: SparkSession) -> None:
    matches = [
        {"consumer_group": [name, f"{name}, too"], "outcome": "DELIVERED", **kept} for name, kept in KEPT.items()
    ]
    row = ("b", "T", 3, date(2026, 11, 21), 100, MESSAGES, [1000 + 50 * i for i in range(MESSAGES)], matches, [])
    found: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for group, *pair in deliveries.pairs(spark.createDataFrame([row], BLOCK_TYPES)).collect():
        found[group].append(tuple(pair))
    for name, positions in EXPECTED.items():
        pairs = [("b", "T", 3, 100 + i, 1000 + 50 * i, "DELIVERED") for i in positions]
        assert sorted(found[name]) == sorted(found[f"{name}, too"]) == pairs


def test_a_run_of_odd_length(spark: SparkSession) -> None:
    every = {"consumer_group": ["all"], "outcome": "DELIVERED", "messages": 70, "positions": None, "bits": None}
    row = ("b", "T", 3, date(2026, 11, 21), 100, 70, list(range(70)), [every], [])
    assert deliveries.pairs(spark.createDataFrame([row], BLOCK_TYPES)).count() == 70


def test_a_filter_on_the_group_comes_before_its_messages_are_spread_out(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    deliveries.pairs(spark.createDataFrame([], BLOCK_TYPES)).where("consumer_group = 'few'").explain("extended")
    plan = capsys.readouterr().out.split("== Optimized Logical Plan ==")[1]
    of_group = plan.index("Filter (isnotnull(consumer_group")
    assert plan.index("Generate posexplode") < of_group < plan.index("Generate explode(match"), plan
