"""Reads a message log (JSON lines or Parquet) as the new messages of a night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from jobs.night.changes import Changes
from jobs.night.rejected import RejectedLine, quarantined_lines, remove_lines
from schemas.arrow_batches import gathered
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import DataFile, DataFileWriter
from schemas.messages import message_log, message_log_rows
from schemas.messages.bodies import Bodies
from schemas.messages.mapped_rows import MappedRows
from schemas.quarantine import QUARANTINE
from schemas.spark_tasks import run_on_rows
from schemas.storage import Storage


class IngestedLog(NamedTuple):
    """``new``: the first and last (exclusive) physical offset of the new messages; None if there are none."""

    has_messages: bool
    new: tuple[int, int] | None


def ingest_message_log(source: Path, bodies: Bodies, changes: Changes, spark: SparkSession) -> IngestedLog:
    """Adds the messages that commitlog does not have, and quarantines invalid lines."""
    changes.create_missing([COMMITLOG, QUARANTINE])
    messages, rejected = message_log_rows.read(spark, source, changes.broker_name)
    stored = changes.warehouse.rows(COMMITLOG, ["commitlog_offset"], files=changes.files(COMMITLOG))
    known = np.sort(stored["commitlog_offset"].to_numpy())
    writer = _MessageWriter(changes.warehouse.log(COMMITLOG).storage, changes.run, bodies, known)
    written = run_on_rows(messages.drop("broker_name"), writer)
    files = [file for files, _ in written for file in files]
    has_messages = any(read for _, read in written)
    _quarantine(rejected.drop("broker_name"), [file.name for file in message_log.files(source)], changes)
    changes.add_files(COMMITLOG, files)
    paths = {file.path for file in files}
    added = [file for file in changes.files(COMMITLOG) if file.path in paths]
    if not added:
        return IngestedLog(has_messages, None)
    new = (
        min(file.least["commitlog_offset"] for file in added),
        max(file.greatest["commitlog_offset"] for file in added) + 1,
    )
    return IngestedLog(has_messages, new)


def _quarantine(rejected: DataFrame, names: Sequence[str], changes: Changes) -> None:
    """Quarantines rejected lines, and removes those of the same files that are not rejected any more."""
    stored = quarantined_lines(names, changes)
    writer = _RejectedWriter(changes.warehouse.log(QUARANTINE).storage, changes.run, frozenset(stored))
    written = run_on_rows(rejected, writer)
    remove_lines(stored - {line for _, known in written for line in known}, changes)
    changes.add_files(QUARANTINE, [file for files, _ in written for file in files])


@dataclass(frozen=True)
class _MessageWriter:
    """Writes the messages that commitlog does not have, and counts all. ``known``: the stored offsets, sorted."""

    storage: Storage
    run: str
    bodies: Bodies
    known: NDArray[np.int64]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[list[DataFile], int]]:
        rows, read = MappedRows(self.run, self.bodies), 0
        file = DataFileWriter(COMMITLOG, self.storage)
        for batch in gathered(batches):
            read += batch.num_rows
            is_new = ~np.isin(batch["commitlog_offset"].to_numpy(), self.known)
            new = rows.rows(batch.filter(pa.array(is_new)))
            if new.num_rows:
                file.write([new])
        yield file.close(), read


@dataclass(frozen=True)
class _RejectedWriter:
    """Writes the rejected lines that are not in quarantine, and yields those that are: ``known``."""

    storage: Storage
    run: str
    known: frozenset[RejectedLine]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[list[DataFile], list[RejectedLine]]]:
        file, found = DataFileWriter(QUARANTINE, self.storage), []
        for batch in gathered(batches):
            lines = [RejectedLine(**row) for row in batch.to_pylist()]
            found += [line for line in lines if line in self.known]
            new = [{**line._asdict(), "run": self.run} for line in lines if line not in self.known]
            if new:
                file.write([QUARANTINE.rows_batch(new)])
        yield file.close(), found
