"""verify: are the broker's consume queue and its extension, byte for byte, what its commitlog says?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs import application
from jobs.run import Run
from schemas.consumequeue import CONSUMEQUEUE
from schemas.python_rows import data_frame
from schemas.store.queue_verification import QueueFiles, differences

ENTRY_COLUMNS = (
    "topic", "queue_id", "queue_offset", "commitlog_offset", "size", "tags_code", "store_timestamp", "filter_bit_map",
)  # fmt: skip
DIFFERENCE_TYPES = "topic string, queue_id int, file string, queue_offset bigint, reason string"
DIFFERENCE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("file", pa.string()),
        ("queue_offset", pa.int64()),
        ("reason", pa.string()),
    ]
)
SHOWN = 50


def verify(run: Run, store: Path) -> DataFrame:
    """A row a place where the files on disk differ from those rebuilt; a queue at a time, in the workers.

    Raises UsageError where the warehouse has no entry of the broker.
    """
    broker = run.broker
    extension_size = broker.mapped_file_size_consume_queue_ext if broker.enable_consume_queue_ext else None
    entries = CONSUMEQUEUE.read(run.spark, run.warehouse).where(F.col("broker_name") == broker.broker_name)
    compare = _comparison(store.resolve(), broker.mapped_file_size_consume_queue, extension_size)
    with_entries = entries.select(*ENTRY_COLUMNS).groupBy("topic", "queue_id").applyInArrow(compare, DIFFERENCE_TYPES)
    known = {(row["topic"], row["queue_id"]) for row in entries.select("topic", "queue_id").distinct().collect()}
    if not known:
        raise application.UsageError(
            f"{run.warehouse.location} has no entry of the broker {broker.broker_name}; give the --broker-config that "
            "it was made with, or run ./spark-submit.sh nightly first"
        )
    unknown = [
        {
            "topic": queue.parent.name,
            "queue_id": int(queue.name),
            "file": kind,
            "reason": "no message of the log belongs to this queue",
        }
        for kind in ("consumequeue", "consumequeue_ext")
        for queue in sorted((store / kind).glob("*/*"))
        if queue.name.isdecimal() and (queue.parent.name, int(queue.name)) not in known
    ]
    return with_entries.union(data_frame(run.spark, unknown, DIFFERENCE_TYPES))


def _comparison(store: Path, file_size: int, extension_size: int | None) -> Callable[[pa.Table], pa.Table]:
    def compare(entries: pa.Table) -> pa.Table:
        entries = entries.sort_by("queue_offset")
        topic, queue_id = entries["topic"][0].as_py(), entries["queue_id"][0].as_py()
        expected = QueueFiles.rebuilt(entries, file_size, extension_size)
        found = differences(expected, QueueFiles.on_disk(store, topic, queue_id))
        rows = [(topic, queue_id, each.file, each.queue_offset, each.reason) for each in found]
        return pa.Table.from_pylist(
            [dict(zip(DIFFERENCE_SCHEMA.names, row, strict=True)) for row in rows], schema=DIFFERENCE_SCHEMA
        )

    return compare


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("verify", __doc__)
    # Not as .store: without a --broker-config the switches are those of the last run, not what this store suggests.
    parser.add_argument(
        "--store", dest="compared", type=Path, required=True, metavar="DIR", help="the broker's store folder"
    )
    options = parser.parse_args(arguments)
    store: Path = options.compared
    if not (store / "consumequeue").is_dir():
        raise application.UsageError(f"{store} has no consumequeue folder; give a broker's whole store folder")
    with Run.start("verify", options) as run:
        if not CONSUMEQUEUE.exists(run.spark, run.warehouse):
            raise application.NotYetWritten(run.warehouse, CONSUMEQUEUE.name)
        found = verify(run, store).orderBy("topic", "queue_id", "file", "queue_offset").collect()
    if not found:
        print("identical: every consume queue and extension file is what the commitlog says, byte for byte")
        return
    for row in found[:SHOWN]:
        where = row["file"] if row["queue_offset"] is None else f"{row['file']}, entry {row['queue_offset']}"
        print(f"{row['topic']}/{row['queue_id']}: {where}: {row['reason']}")
    raise application.Differences(f"{len(found):,} differences, the first {min(SHOWN, len(found))} above")


if __name__ == "__main__":
    application.run(main)
