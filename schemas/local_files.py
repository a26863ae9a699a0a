"""Reading a table's Parquet files in the worker, where it can open them: no hand-over from the JVM.

The rows are those of Spark's own scan, since no mqsieve table has deletion vectors; only how they
get to Python differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

Kernel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
ROWS_IN_A_BATCH = 1 << 16
ROWS_IN_A_TASK = 1 << 22


def map_rows(table: DataFrame, broker_name: str, columns: Sequence[str], kernel: Kernel, types: str) -> DataFrame:
    """``kernel`` over the broker's rows of a table that is partitioned by broker_name, in the order of the files.

    It sees Arrow batches of ``columns``. ``types``: the columns that the kernel makes, as DDL.
    """
    spark = table.sparkSession
    rows = table.where(table["broker_name"] == broker_name)
    files = [urlparse(file) for file in rows.inputFiles()]
    on_this_machine = str(spark.conf.get("spark.master", "")).startswith("local")
    if not on_this_machine or any(file.scheme != "file" for file in files):
        return rows.select(*columns).mapInArrow(kernel, types)
    tasks = _tasks([unquote(file.path) for file in files])
    reader = _Reader(tasks, broker_name, tuple(columns), kernel)
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(reader, types)


def _tasks(paths: Sequence[str]) -> list[list[_Piece]]:
    """The row groups of some files, in order, in tasks of about as many rows: a multiple of the cores."""
    pieces = []
    for path in sorted(paths):
        metadata = pq.read_metadata(path)
        groups = (_Piece(path, group, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups))
        pieces += [piece for piece in groups if piece.rows]
    cores, rows = os.cpu_count() or 1, sum(piece.rows for piece in pieces)
    count = min(len(pieces), cores * -(-rows // (cores * ROWS_IN_A_TASK)))
    tasks: list[list[_Piece]] = [[] for _ in range(count)]
    done = 0
    for piece in pieces:
        tasks[(2 * done + piece.rows) * count // (2 * rows)].append(piece)
        done += piece.rows
    return [task for task in tasks if task]


@dataclass(frozen=True)
class _Piece:
    path: str
    row_group: int
    rows: int


@dataclass(frozen=True)
class _Reader:
    tasks: Sequence[Sequence[_Piece]]
    broker_name: str
    columns: tuple[str, ...]
    kernel: Kernel

    def __call__(self, indices: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.kernel(self._batches(indices))

    def _batches(self, indices: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stored = [name for name in self.columns if name != "broker_name"]
        for batch in indices:
            for piece in (piece for index in batch["id"].to_pylist() for piece in self.tasks[index]):
                with pq.ParquetFile(piece.path, memory_map=True) as file:
                    for rows in file.iter_batches(ROWS_IN_A_BATCH, [piece.row_group], stored, use_threads=False):
                        yield self._with_broker(rows)

    def _with_broker(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A file leaves out the columns that its table is partitioned by."""
        broker_name = pa.repeat(pa.scalar(self.broker_name), rows.num_rows)
        columns = [broker_name if name == "broker_name" else rows[name] for name in self.columns]
        return pa.RecordBatch.from_arrays(columns, self.columns)
