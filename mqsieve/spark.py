"""mqsieve in a Spark session. Spark's workers must be able to import the package.

    from mqsieve import spark

    spark.match(orders, {"cg_expensive": "price > 50.0"}, properties="attributes")

    spark.register(session)
    session.read.format("rocketmq_commitlog").load("/backup/broker-a/store")

``spark_session`` is a session on this machine with Delta Lake, or the active one.
"""

from __future__ import annotations

from jobs.cli.session import spark_session
from schemas.rocketmq_store.commitlog_source import register
from schemas.spark_match import match

__all__ = ["match", "register", "spark_session"]
