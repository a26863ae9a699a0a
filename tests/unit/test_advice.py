"""Advice in messages fits the place that it is about."""

from __future__ import annotations

import pytest

from schemas.delta.warehouse import Warehouse
from schemas.storage import Storage


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("s3://bucket/w", "AWS_ACCESS_KEY_ID"),
        ("s3a://bucket/w", "AWS_ACCESS_KEY_ID"),
        ("gs://bucket/w", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfss://container@account.dfs.core.windows.net/w", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("hdfs://namenode:8020/w", "NameNode"),
        ("oss://bucket/w", "the URI"),
    ],
)
def test_only_s3_is_told_about_the_keys_of_aws(root: str, words: str) -> None:
    connection = Storage.at(root).connection
    assert words in connection
    assert ("AWS" in connection) == root.startswith("s3")


def test_commands_on_a_catalog_have_the_options_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--packages", "org.example:catalog:1.0", "--conf", "spark.sql.catalog.lake=org.example.Catalog",
             "--conf", "spark.hadoop.fs.s3a.secret.key=hunter2")  # fmt: skip
    monkeypatch.setenv("MQSIEVE_SPARK_OPTIONS", "\n".join(given))
    in_catalog = Warehouse(Storage("/data/w"), "lake.events")
    assert in_catalog.command("export deliveries") == (
        "./spark-submit.sh export deliveries --packages org.example:catalog:1.0 "
        "--conf spark.sql.catalog.lake=org.example.Catalog --conf 'spark.hadoop.fs.s3a.secret.key=…' "
        "--warehouse lake.events"
    )
    assert Warehouse(Storage("/data/w")).command("lag") == "./spark-submit.sh lag --warehouse /data/w"
