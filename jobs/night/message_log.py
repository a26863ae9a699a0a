"""Reads a message log (JSON lines or Parquet) as the new messages of a night."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from jobs.night.changes import Changes
from schemas.arrow_batches import gathered
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import DataFile, DataFileWriter
from schemas.delta.table import Table
from schemas.delta.table_rows import one_of
from schemas.messages import message_log, message_log_rows
from schemas.messages.bodies import Bodies
from schemas.messages.mapped_rows import MappedRows
from schemas.quarantine import QUARANTINE
from schemas.spark_tasks import run_on_rows
from schemas.storage import Storage

Encode = Callable[[pa.RecordBatch], pa.RecordBatch]


def ingest_message_log(source: Path, bodies: Bodies, changes: Changes, spark: SparkSession) -> tuple[int, int] | None:
    """Adds the messages that commitlog does not have, and quarantines invalid lines.

    Returns the first and last (exclusive) physical offset of the new messages; None if there are none.
    """
    changes.create_missing([COMMITLOG, QUARANTINE])
    messages, rejected = message_log_rows.read(spark, source, changes.broker_name)
    stored = changes.warehouse.rows(COMMITLOG, ["commitlog_offset"], files=changes.files(COMMITLOG))
    known = np.sort(stored["commitlog_offset"].to_numpy())
    files = _write(messages.drop("broker_name"), COMMITLOG, changes, _NewRows(changes.run, bodies, known))
    names = [file.name for file in message_log.files(source)]
    changes.delete_rows(QUARANTINE, [one_of("source_file", names)], changes.files(QUARANTINE))
    changes.add_files(QUARANTINE, _write(rejected.drop("broker_name"), QUARANTINE, changes, _RejectedRows(changes.run)))
    changes.add_files(COMMITLOG, files)
    paths = {file.path for file in files}
    added = [file for file in changes.files(COMMITLOG) if file.path in paths]
    if not added:
        return None
    return (
        min(file.least["commitlog_offset"] for file in added),
        max(file.greatest["commitlog_offset"] for file in added) + 1,
    )


@dataclass(frozen=True)
class _NewRows:
    run: str
    bodies: Bodies
    known: NDArray[np.int64]

    def encoder(self) -> Encode:
        rows = MappedRows(self.run, self.bodies)

        def encode(batch: pa.RecordBatch) -> pa.RecordBatch:
            is_new = ~np.isin(batch["commitlog_offset"].to_numpy(), self.known)
            return rows.rows(batch.filter(pa.array(is_new)))

        return encode


@dataclass(frozen=True)
class _RejectedRows:
    run: str

    def encoder(self) -> Encode:
        def encode(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = {name: batch[name] for name in batch.schema.names}
            return QUARANTINE.batch(columns | {"run": pa.repeat(self.run, batch.num_rows)}, batch.num_rows)

        return encode


def _write(rows: DataFrame, table: Table, changes: Changes, encoding: _NewRows | _RejectedRows) -> list[DataFile]:
    """The files that Spark's workers wrote for some rows."""
    writer = _Writer(table, changes.warehouse.log(table).storage, encoding)
    return [file for files in run_on_rows(rows, writer) for file in files]


@dataclass(frozen=True)
class _Writer:
    table: Table
    storage: Storage
    encoding: _NewRows | _RejectedRows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[DataFile]]:
        encode = self.encoding.encoder()
        file = DataFileWriter(self.table, self.storage)
        for batch in gathered(batches):
            if (rows := encode(batch)).num_rows:
                file.write([rows])
        yield file.close()
