"""Parquet files of tables, as workers write them and as the Delta log lists them.

No reader sees a file before the driver commits it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.delta.file_layout import as_type, file_schema, row_group, without_dictionary
from schemas.delta.table import FileWriter, Table
from schemas.storage import Storage

ROWS_OF_A_GROUP = 1 << 16
"""Most rows of a row group: readers load one after the other."""


@dataclass(frozen=True)
class DataFile:
    """A file that was written. ``stats`` are its statistics in the Delta log, as JSON."""

    path: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True)
class StoredFile:
    """A file of a table's snapshot. ``least`` and ``greatest`` are statistics of the Delta log, by column."""

    path: str
    size: int
    rows: int
    broker_name: str | None
    least: dict[str, Any] = field(repr=False)
    greatest: dict[str, Any] = field(repr=False)

    @classmethod
    def from_add_action(cls, row: dict[str, Any]) -> StoredFile:
        """A file of a snapshot, from a row of its flattened add actions."""
        present = {key: value for key, value in row.items() if value is not None}
        least, greatest = (
            {key.removeprefix(kind): value for key, value in present.items() if key.startswith(kind)}
            for kind in ("min.", "max.")
        )
        return cls(
            row["path"], row["size_bytes"], row["num_records"], row.get("partition.broker_name"), least, greatest
        )

    @classmethod
    def from_data_file(cls, file: DataFile, broker_name: str | None) -> StoredFile:
        """A file that was just written, as a snapshot shows it after the commit."""
        stats = json.loads(file.stats)
        return cls(file.path, file.size, file.rows, broker_name, stats["minValues"], stats["maxValues"])


class DataFileWriter:
    """Writes rows to the folder of ``table``. A file is created with its first rows.

    A file leaves out columns without values, and its columns without nulls are required: both take less time to write.
    If later rows do not fit, they go to another file.
    """

    def __init__(self, table: Table, storage: Storage) -> None:
        self._table = table
        self._storage = storage
        self._schema: pa.Schema | None = None
        self._path = ""
        self._sink: pa.NativeFile | None = None
        self._writer: FileWriter | None = None
        self._rows = 0
        self._files: list[DataFile] = []

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Adds rows as one row group. The batches are of the table's file_schema; strings may be dictionaries."""
        rows = row_group(self._table, batches)
        if not rows.num_rows:
            return
        schema = file_schema(self._table, rows, self._schema)
        if self._writer is None or schema != self._schema:
            self._end_file()
            self._schema = schema
            self._path = f"part-{uuid.uuid4()}.parquet"
            self._sink = self._storage.file_system.open_output_stream(self._path)
            self._writer = self._table.writer(self._sink, schema, without_dictionary(self._table, rows))
        columns = [as_type(field.type, rows[field.name]) for field in schema]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def close(self) -> list[DataFile]:
        """Ends the last file and returns all files."""
        self._end_file()
        return self._files

    def _end_file(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        stats = json.dumps(statistics(self._writer.writer.metadata))
        self._files.append(DataFile(self._path, size, self._rows, stats))
        self._writer, self._rows = None, 0


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
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
        if all(each is not None and each.has_null_count for each in found):
            nulls[name] = sum(each.null_count for each in found)
            ranges = [each for each in found if each.has_min_max]
            if ranges and all(each.has_min_max or not each.num_values for each in found):
                least[name] = _json(min(each.min for each in ranges))
                greatest[name] = _json(max(each.max for each in ranges))
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
