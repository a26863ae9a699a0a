"""A few reads and writes of tables, for the classes that they load: what Java archives them from."""

import tempfile
from collections.abc import Iterator

import pyarrow as pa

from jobs.session import spark_session
from schemas import quarantine, run_ledger
from schemas.python_rows import data_frame
from schemas.quarantine import QUARANTINE
from schemas.warehouse import Warehouse


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


spark = spark_session("mqsieve first use")
with tempfile.TemporaryDirectory() as folder:
    warehouse = Warehouse.at(folder)
    damage = {"broker_name": "b", "source_file": "f", "offset": 0, "reason": "r", "bytes": b""}
    quarantine.replace(spark, warehouse, "b", ["f"], data_frame(spark, [damage], quarantine.ROW_TYPES))
    commit = QUARANTINE.last_commit(spark, warehouse)
    entry = run_ledger.Entry("r", "j", "b", {}, "i", {}, {"quarantine": commit.version}, commit.rows)
    run_ledger.record(spark, warehouse, [entry])
    run_ledger.last_runs(spark, warehouse, "b")
spark.range(1).mapInArrow(same, "id bigint").collect()
