"""export: a table as JSON lines, one object a row, binary as lower-case hex."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs import application
from jobs.session import spark_session
from schemas import deliveries
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.quarantine import QUARANTINE
from schemas.run_ledger import RUN_LEDGER
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.warehouse import Warehouse

TABLES = {
    table.name: table for table in (COMMITLOG, QUARANTINE, SUBSCRIPTIONS, CONSUMEQUEUE, DELIVERY_STATS, RUN_LEDGER)
}
NAMES = (*TABLES, "deliveries")


def rows_of(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame:
    """The rows of a table, deliveries as one row a pair. Raises NotYetWritten where nothing was written yet."""
    table = DELIVERY_BLOCKS if name == "deliveries" else TABLES[name]
    if not table.exists(spark, warehouse):
        raise application.NotYetWritten(warehouse, name)
    return deliveries.read(spark, warehouse) if name == "deliveries" else table.read(spark, warehouse)


def write_json_lines(rows: DataFrame, output: Path) -> int:
    """Writes rows through this process, a partition at a time; returns how many."""
    written = 0
    with output.open("w", encoding="utf-8") as file:
        for row in rows.toLocalIterator(prefetchPartitions=True):
            file.write(json.dumps(row.asDict(recursive=True), ensure_ascii=False, default=_json) + "\n")
            written += 1
    return written


def _json(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")


def main(arguments: list[str]) -> None:
    parser = application.parser("export", __doc__)
    parser.add_argument("table", choices=NAMES, metavar="TABLE", help=", ".join(NAMES))
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the .jsonl file to write")
    options = parser.parse_args(arguments)
    if not options.output.parent.is_dir():
        raise application.UsageError(f"the folder {options.output.parent} does not exist: make it first")
    rows = rows_of(spark_session("mqsieve export"), Warehouse.at(options.warehouse), options.table)
    written = write_json_lines(rows, options.output)
    print(f"{options.table}: {written:,} rows in {options.output}")


if __name__ == "__main__":
    application.run(main)
