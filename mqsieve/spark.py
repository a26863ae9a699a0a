"""mqsieve in a Spark session. Spark's workers must be able to import the package.

    from mqsieve import spark

    spark.match(orders, {"cg_expensive": "price > 50.0"}, properties="attributes")

    spark.register(session)
    session.read.format("rocketmq_commitlog").load("/backup/broker-a/store")
    session.read.format("mqsieve").option("table", "deliveries").load("/data/mqsieve")

``spark_session`` is a session on this machine with Delta Lake, or the active one.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from answers import spark_source
from jobs.cli.session import spark_session
from schemas.rocketmq_store import commitlog_source
from schemas.spark_match import match

__all__ = ["match", "register", "spark_session"]


def register(spark: SparkSession) -> None:
    """Registers the formats ``mqsieve``, ``rocketmq_commitlog`` and ``rocketmq_commitlog_damage`` with a session."""
    commitlog_source.register(spark)
    spark_source.register(spark)
