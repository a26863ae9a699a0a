"""The Spark data source ``rocketmq_commitlog``: a store folder as rows."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.rocketmq_store.commitlog_source import register
from schemas.rocketmq_store.message_decoder import SCHEMA
from tests.captures import capture, rows


@pytest.fixture(scope="module", autouse=True)
def _formats(spark: SparkSession) -> None:
    register(spark)


def messages(spark: SparkSession, schema: str, name: str = "small") -> DataFrame:
    return spark.read.format("rocketmq_commitlog").schema(schema).load(str(capture(name) / "store"))


def test_a_store_reads_as_its_messages(spark: SparkSession) -> None:
    read = (
        spark.read.format("rocketmq_commitlog").option("brokerName", "broker-a").load(str(capture("small") / "store"))
    )
    rows_read = read.drop("body").orderBy("commitlog_offset").collect()
    expected = [row for row in rows("small", "messages") if not row.get("blank")]

    assert read.columns == ["broker_name", *SCHEMA.names]
    assert {row.broker_name for row in rows_read} == {"broker-a"}
    assert [row.msg_id for row in rows_read] == [row["msgId"] for row in expected]
    assert [row.properties for row in rows_read] == [row["properties"] for row in expected]
    assert [row.store_timestamp for row in rows_read] == [row["storeTimestamp"] for row in expected]


def test_one_partition_a_segment_file(spark: SparkSession) -> None:
    frame = messages(spark, "commitlog_offset bigint").select(F.spark_partition_id().alias("part"), "commitlog_offset")
    parts = {(row.part, row.commitlog_offset // 131072) for row in frame.collect()}

    assert parts == {(index, index) for index in range(6)}


def test_the_schema_is_the_projection(spark: SparkSession) -> None:
    row = messages(spark, "body binary, topic string, flag int").where("topic = 'OrderEvents'").first()

    assert row is not None
    assert list(row.asDict()) == ["body", "topic", "flag"]
    assert len(row.body) == next(r["bodyLength"] for r in rows("small", "messages") if r.get("topic") == "OrderEvents")


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_queries_on_one_dataframe_do_not_change_each_other(spark: SparkSession, pushdown: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        log = messages(spark, "topic string, store_timestamp bigint")
        tags, orders = log.where("topic = 'TagLab'"), log.where("topic = 'OrderEvents'")

        assert log.count() == 743
        assert tags.count() == 183
        assert log.count() == 743
        assert log.groupBy("topic").count().where("topic = 'OrderEvents'").first() == ("OrderEvents", 312)
        assert sorted(tags.union(orders).groupBy("topic").count().collect()) == [("OrderEvents", 312), ("TagLab", 183)]
        assert tags.union(log).count() == 183 + 743
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_damage_is_what_lies_between_the_messages(spark: SparkSession) -> None:
    source = spark.read.format("rocketmq_commitlog_damage")
    [torn] = source.load(str(capture("small_torn") / "store")).collect()
    [cut] = source.schema("offset bigint, bytes binary").load(str(capture("small_truncated") / "store")).collect()

    assert source.load(str(capture("small") / "store")).count() == 0
    assert (torn.offset, len(torn.bytes)) == (659900, 483)
    assert torn.source_file.endswith("store/commitlog/00000000000000655360")
    assert "do not add up" in torn.reason
    assert (cut.offset, len(cut.bytes)) == (659900, 660098 - 659900)
    assert (
        messages(spark, "flag int", "small_torn").count()
        == messages(spark, "flag int", "small_truncated").count()
        == 730
    )


def test_what_cannot_be_read_says_so(spark: SparkSession, tmp_path: Path) -> None:
    wrong = {
        "tag string": "there is no column tag",
        "queue_id bigint": "column queue_id is int, not bigint",
        "broker_name string": "broker_name needs the option brokerName",
    }
    for schema, sentence in wrong.items():
        with pytest.raises(AnalysisException, match=sentence):
            messages(spark, schema).count()
    with pytest.raises(AnalysisException, match="holds no commit log segment"):
        spark.read.format("rocketmq_commitlog").load(str(tmp_path)).count()


def test_a_file_uri_is_a_path(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "my store"
    folder.symlink_to(capture("small") / "store")

    assert spark.read.format("rocketmq_commitlog").schema("flag int").load(folder.as_uri()).count() == 743
