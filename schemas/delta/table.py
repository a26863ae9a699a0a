"""A Delta table: its columns, and how its files are written.

Workers write the Parquet files themselves with PyArrow, and the driver commits them with deltalake; Spark
schedules the work and reads the tables (docs/DECISIONS.md says why).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from filtering.frozen import frozen
from schemas.arrow_batches import as_one_type
from schemas.storage import Storage

EVERY_TABLE = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "10"}
"""Without deletion vectors, the rows of a table are those of its files, for every reader."""
LAYOUT = 8
"""Version of the tables' columns and their content. The description of every table has it."""
UPGRADED_LAYOUT = 2
"""The oldest layout that a night brings up to date: its tables lack columns and nulls, and have FORMER_NAMES."""
_LAYOUT = re.compile(r"\(mqsieve layout (\d+)\)$")
DICTIONARY_BYTES = 1 << 18
BLOOM_FILTER_ERRORS = 0.1
"""At most this share of row groups is read for nothing when a reader looks up a value."""
COMMENTS = {
    "broker_name": "brokerName of the broker",
    "topic": "full name, with its namespace",
    "queue_id": "number of the queue in its topic",
    "queue_offset": "number of the message in its queue",
    "commitlog_offset": "physical offset in the commitlog, bytes",
    "consumer_group": "full name, with its namespace",
    "run": "the run that wrote the row: its start time, UTC",
    "begins_at": "physical offset with which the queue began again at queue offset 0; null: it never did",
    "decided_to": "deliveries are known for all entries before this queue offset; null: for none",
    "committed": "the broker's offset, from config/consumerOffset.json of the snapshot; -1: it has none any more",
}
"""Comments of columns with the same meaning in every table."""
FORMER_NAMES = {"decided_to": "told_to"}
"""Columns that tables of older layouts have under another name: the name, and the former one."""


class FileWriter(pq.ParquetWriter):  # type: ignore[misc]  # PyArrow has no types
    """A writer that only :meth:`close` ends.

    PyArrow's own tries to end its file when it is deleted, and on a full disk Python then prints a stack trace.
    """

    def __del__(self) -> None:
        pass


def column(name: str, kind: pa.DataType, comment: str = "", nullable: bool = True) -> pa.Field:
    """A column of a table, with a comment for its readers."""
    comment = comment or COMMENTS.get(name, "")
    return pa.field(name, kind, nullable, metadata={"comment": comment} if comment else None)


def layout_of(description: str | None) -> int:
    """The layout of a table with this description. Layout 1 was not in descriptions."""
    match = _LAYOUT.search(description or "")
    return int(match[1]) if match else 1


@frozen(eq=False)
class Table:
    """Definition of a Delta table. ``columns`` are all; those in ``partition_by`` are not in the files.

    ``constraints`` are CHECKs by name. ``statistics_on``: columns whose least and greatest values readers use to
    skip files. ``dictionary_encoded``: Parquet columns (with paths such as ``matches.list.element.outcome``) with few
    distinct values; ``delta_encoded``: integer columns whose neighbouring values are close. ``bloom_filtered``: columns
    of texts that have a Bloom filter in each row group, so that readers find a value without reading the column.
    """

    name: str
    comment: str
    columns: Sequence[pa.Field]
    partition_by: tuple[str, ...] = ("broker_name",)
    constraints: Mapping[str, str] = field(default_factory=dict)
    statistics_on: tuple[str, ...] = ()
    dictionary_encoded: tuple[str, ...] = ()
    delta_encoded: tuple[str, ...] = ()
    bloom_filtered: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema(self.columns)

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The columns of the table's files."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    @property
    def description(self) -> str:
        """The description of the Delta table: the comment and the layout."""
        return f"{self.comment} (mqsieve layout {LAYOUT})"

    @property
    def properties(self) -> dict[str, str]:
        """The configuration of the Delta table."""
        return EVERY_TABLE | {"delta.dataSkippingStatsColumns": ",".join(self.statistics_on)}

    @cached_property
    def dictionary_texts(self) -> tuple[str, ...]:
        """The columns of texts that are ``dictionary_encoded``."""
        texts = {field.name for field in self.schema if pa.types.is_string(field.type)}
        return tuple(name for name in self.dictionary_encoded if name in texts)

    @cached_property
    def known_statistics(self) -> tuple[str, ...]:
        """The columns whose least and greatest values the Delta log has of every file: no nulls and no long texts."""
        integers = (name for name in self.statistics_on if pa.types.is_integer(self.schema.field(name).type))
        return (*integers, *({"run"} & {*self.statistics_on}))

    def batch(self, columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
        """Rows of the table's files from columns by name; missing columns are null."""
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in self.file_schema
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self.file_schema.names)

    def rows_batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Rows of the table's files from Python mappings; missing columns are null."""
        return pa.RecordBatch.from_pylist(list(rows), schema=self.file_schema)

    def writer(self, sink: pa.NativeFile, schema: pa.Schema, plain: frozenset[str], rows: int) -> FileWriter:
        """A writer of a file of the table. ``plain``: ``dictionary_encoded`` columns with many distinct values.

        ``rows``: of a row group; a Bloom filter takes a byte or less for each.
        """
        bloom_filter = {"ndv": rows, "fpp": BLOOM_FILTER_ERRORS}
        return FileWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in self.dictionary_encoded if name not in plain],
            column_encoding=dict.fromkeys(self.delta_encoded, "DELTA_BINARY_PACKED")
            | {name: "DELTA_LENGTH_BYTE_ARRAY" for name in plain if pa.types.is_string(schema.field(name).type)},
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            bloom_filter_options={name: bloom_filter for name in self.bloom_filtered if name in schema.names},
            write_statistics=list(self.statistics_on),
            write_page_checksum=True,
            store_schema=False,
        )


# How rows are laid out in a Parquet file: its columns, and which of them have dictionaries.


SAMPLE = 4096
"""Values of a column that decide whether a dictionary pays off."""


def columns_written(table: Table, rows: pa.Table, before: pa.Schema | None) -> pa.Schema:
    """The columns of a file with ``rows``: those with values, and those of the file before."""
    known = {field.name: field for field in before or ()}
    fields = []
    for name in table.file_schema.names:
        column = rows[name]
        if name in known or column.null_count < len(column) or name in table.statistics_on:
            field = known.get(name, pa.field(name, column.type, nullable=before is not None))
            fields.append(field.with_nullable(field.nullable or column.null_count > 0))
    return pa.schema(fields)


def row_group(table: Table, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows of some batches. A column of texts has one dictionary, or none if most of its values are distinct."""
    columns = [
        pa.chunked_array(as_one_type([batch.column(index) for batch in batches]))
        for index in range(len(table.file_schema))
    ]
    # If a row group had several dictionaries, its rows would be written without them.
    rows = pa.Table.from_arrays(columns, names=table.file_schema.names).unify_dictionaries()
    for index, name in enumerate(rows.schema.names):
        column = rows[name]
        if pa.types.is_dictionary(column.type):
            values = len(column.chunk(0).dictionary)
            if values > SAMPLE // 4 and 2 * values > rows.num_rows:
                rows = rows.set_column(index, name, _decoded(column))
    return rows


def as_type(wanted: pa.DataType, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same texts as a dictionary, or not as one."""
    if column.type == wanted:
        return column
    return column.dictionary_encode() if pa.types.is_dictionary(wanted) else _decoded(column)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks])


def without_dictionary(table: Table, rows: pa.Table) -> frozenset[str]:
    """The ``dictionary_encoded`` columns of a file that need no dictionary.

    Mostly distinct texts would be stored twice. Mostly equal numbers are as small without one, and written faster.
    """
    return frozenset(name for name in table.dictionary_encoded if name in rows.schema.names and _is_plain(rows[name]))


def _is_plain(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        return False
    sample = column.slice(0, SAMPLE).combine_chunks().drop_null()
    if pa.types.is_string(column.type):
        return len(sample) > SAMPLE // 4 and 2 * len(sample.unique()) > len(sample)
    return len(sample) > 0 and 16 * pc.sum(pc.equal(sample, sample[0])).as_py() > 15 * len(sample)


# Parquet files of tables, as workers write them and as the Delta log lists them.
#
# No reader sees a file before the driver commits it.


ROWS_OF_A_GROUP = 1 << 16
"""Most rows of a row group: readers load one after the other."""


@frozen
class DataFile:
    """A file that was written. ``stats`` are its statistics in the Delta log, as JSON."""

    path: str
    size: int
    rows: int
    stats: str


@frozen
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
        schema = columns_written(self._table, rows, self._schema)
        if self._writer is None or schema != self._schema:
            self._end_file()
            self._schema = schema
            self._path = f"part-{uuid.uuid4()}.parquet"
            self._sink = self._storage.file_system.open_output_stream(self._path)
            plain = without_dictionary(self._table, rows)
            self._writer = self._table.writer(self._sink, schema, plain, rows.num_rows)
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
        column_statistics = [group.statistics for group in groups]
        if all(part is not None and part.has_null_count for part in column_statistics):
            nulls[name] = sum(part.null_count for part in column_statistics)
            ranges = [part for part in column_statistics if part.has_min_max]
            if ranges and all(part.has_min_max or not part.num_values for part in column_statistics):
                least[name] = _json(min(part.min for part in ranges))
                greatest[name] = _json(max(part.max for part in ranges))
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
