"""Parquet files of tables, which workers write. No reader sees them before the driver commits them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.delta.table import Table
from schemas.storage import Storage

SAMPLE = 4096
"""Values of a column that decide whether a dictionary pays off."""


@dataclass(frozen=True)
class DataFile:
    """A file that was written. ``stats`` are its statistics in the Delta log, as JSON."""

    path: str
    size: int
    rows: int
    stats: str


class DataFileWriter:
    """Writes one file in the folder of ``table``. The file is created with the first rows."""

    def __init__(self, table: Table, storage: Storage) -> None:
        self._table = table
        self._storage = storage
        self._path = f"part-{uuid.uuid4()}.parquet"
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Adds rows as one row group. The batches are of the table's file_schema; strings may be dictionaries."""
        # If a row group had several dictionaries, its rows would be written without them.
        rows = pa.Table.from_batches(batches).unify_dictionaries()
        if not rows.num_rows:
            return
        if self._writer is None:
            self._sink = self._storage.file_system.open_output_stream(self._path)
            self._writer = self._table.writer(self._sink, rows.schema, _with_many_values(self._table, rows))
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def close(self) -> list[DataFile]:
        """Closes the file and returns it in a list, which is empty if nothing was written."""
        if self._writer is None or self._sink is None:
            return []
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        metadata = self._writer.writer.metadata
        return [DataFile(self._path, size, self._rows, json.dumps(_stats(metadata)))]


def _with_many_values(table: Table, rows: pa.Table) -> frozenset[str]:
    """The columns with mostly distinct values: a dictionary would store these twice."""
    many = set()
    for name in table.dictionary_encoded:
        if name in rows.schema.names and pa.types.is_string(rows.schema.field(name).type):
            sample = rows[name].slice(0, SAMPLE).combine_chunks().drop_null()
            if len(sample) > SAMPLE // 4 and 2 * len(sample.unique()) > len(sample):
                many.add(name)
    return frozenset(many)


def _stats(metadata: pq.FileMetaData) -> dict[str, Any]:
    """The least and greatest values of those columns that have them in every row group.

    Row groups without values do not count. Parquet leaves out values of more than 4,096 bytes.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        groups = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = groups[0].path_in_schema
        found = [group.statistics for group in groups]
        if all(statistics is not None and statistics.has_null_count for statistics in found):
            nulls[name] = sum(statistics.null_count for statistics in found)
            ranges = [statistics for statistics in found if statistics.has_min_max]
            if ranges and all(statistics.has_min_max or not statistics.num_values for statistics in found):
                least[name] = _json(min(statistics.min for statistics in ranges))
                greatest[name] = _json(max(statistics.max for statistics in ranges))
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
