"""Spark itself reaches object stores through Hadoop, whose jars for them Spark does not bring."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from jobs.cli import application


def test_a_missing_jar_is_named(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        application.run(lambda _: spark.read.parquet("s3a://bucket/tables").show())
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "mqsieve: Spark lacks the jars of the file system s3a: add them with --packages, those of s3a with "
        "--packages org.apache.hadoop:hadoop-aws:3.5.0 (docs/CLUSTER.md)\n"
    )
