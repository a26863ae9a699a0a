"""The Spark session of a job, a notebook or the tests."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parent.parent


def spark_session(app_name: str) -> SparkSession:
    """The session there is, or a new one.

    A platform (Spark Connect, a managed notebook) or spark-submit brings its own settings; a plain
    Python process gets those of conf/local.conf and the Delta jars that spark-submit.sh resolved.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "SPARK_REMOTE" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.driver.extraClassPath", f"{PROJECT}/.cache/jars/*")
        for key, value in _local_settings().items():
            builder = builder.config(key, value)
    return builder.getOrCreate()


def _local_settings() -> dict[str, str]:
    lines = (PROJECT / "conf" / "local.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    return {key: value.strip() for key, value in pairs}
