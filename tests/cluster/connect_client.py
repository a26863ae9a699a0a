"""What a user of Spark Connect does, in a process without a JVM: prints what it found as JSON."""

from __future__ import annotations

import json
import sys

import pyarrow.compute as pc

from filtering import sql92
from jobs import pulls
from jobs.cli.session import spark_session
from schemas import commitlog, deliveries, spark_tasks
from schemas.delta.warehouse import Warehouse
from schemas.rocketmq_store import commitlog_source


def main(store: str, folder: str, expression: str) -> None:
    """Reads the tables and the log, and answers a question with tasks of the server's."""
    spark = spark_session("client")
    warehouse = Warehouse.at(folder)
    predicate = sql92.compile(expression).spark_predicate()
    got = deliveries.read(spark, warehouse).where("consumer_group = 'cg_sql_region_price'").toArrow()
    matching = commitlog.read(spark, warehouse).where("topic = 'OrderEvents'").where(predicate).toArrow()
    commitlog_source.register(spark)
    log = spark.read.format("rocketmq_commitlog").load(store).where("topic = 'OrderEvents'").where(predicate)
    answers = {
        "kind": type(spark).__module__,
        "delivered": sorted(got.filter(pc.equal(got["outcome"], "DELIVERED"))["commitlog_offset"].to_pylist()),
        "matching": sorted(matching["commitlog_offset"].to_pylist()),
        "in the log": sorted(log.toArrow()["commitlog_offset"].to_pylist()),
    }
    print(json.dumps(answers))
    spark_tasks.SPARK_FROM_BYTES = -1
    spark_tasks.MOST_THREADS = 0
    spark_tasks.SECONDS_OF_A_READY_SESSION = 600
    pulls.main(["--group", "cg_sql_region_price", "--topic", "OrderEvents", "--warehouse", folder])


if __name__ == "__main__":
    main(*sys.argv[1:])
