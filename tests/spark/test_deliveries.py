"""Readers see one row a pair, however the messages of a run are kept."""

from datetime import date

import pytest
from pyspark.sql import SparkSession

from schemas import deliveries
from schemas.deliveries import BLOCK_TYPES

pytestmark = pytest.mark.spark
KEPT = {
    "few": {"positions": bytes([0, 0, 0, 9]), "bits": None},
    "none": {"positions": b"", "bits": None},
    "many": {"positions": None, "bits": bytes([0b10000001, 0b00000010])},
    "all": {"positions": None, "bits": None},
}
EXPECTED = {"few": [0, 9], "none": [], "many": [0, 7, 9], "all": list(range(10))}


def test_every_way_to_keep_a_run(spark: SparkSession) -> None:
    matches = [
        {"consumer_group": [name, f"{name}, too"], "outcome": "DELIVERED", **kept} for name, kept in KEPT.items()
    ]
    row = ("b", "T", 3, date(2026, 11, 21), 100, 10, [1000 + 50 * i for i in range(10)], matches, [])
    pairs = deliveries.pairs(spark.createDataFrame([row], BLOCK_TYPES))
    for name, positions in EXPECTED.items():
        for group in (name, f"{name}, too"):
            found = pairs.where(pairs["consumer_group"] == group).orderBy("queue_offset").collect()
            assert [tuple(each) for each in found] == [
                (group, "b", "T", 3, 100 + i, 1000 + 50 * i, "DELIVERED") for i in positions
            ]


def test_a_filter_on_the_group_comes_before_its_messages_are_spread_out(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    deliveries.pairs(spark.createDataFrame([], BLOCK_TYPES)).where("consumer_group = 'few'").explain("extended")
    plan = capsys.readouterr().out.split("== Optimized Logical Plan ==")[1]
    generates = [plan.index("Generate inline"), plan.rindex("Generate explode(match")]
    assert generates[0] < plan.index("Filter ") < generates[1], plan
