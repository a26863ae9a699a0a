"""A Delta table: its columns, and how its files are written.

Workers write the Parquet files themselves with PyArrow, and the driver commits them with deltalake; Spark
schedules the work and reads the tables (docs/DECISIONS.md says why).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EVERY_TABLE = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "10"}
"""Without deletion vectors, the rows of a table are those of its files, for every reader."""
LAYOUT = 3
"""Version of the tables' columns and their content. The description of every table has it."""
UPGRADED_LAYOUT = 2
"""The oldest layout that a night brings up to date: its tables only lack columns, which are null in its rows."""
_LAYOUT = re.compile(r"\(mqsieve layout (\d+)\)$")
DICTIONARY_BYTES = 1 << 18
COMMENTS = {
    "broker_name": "brokerName of the broker",
    "topic": "full name, with its namespace",
    "queue_id": "number of the queue in its topic",
    "queue_offset": "number of the message in its queue",
    "commitlog_offset": "physical offset in the commitlog, bytes",
    "consumer_group": "full name, with its namespace",
    "run": "the run that wrote the row: its start time, UTC",
    "begins_at": "physical offset with which the queue began again at queue offset 0; null: it never did",
    "told_to": "deliveries are known for all entries before this queue offset; null: for none",
    "committed": "the broker's offset, from config/consumerOffset.json of the snapshot; -1: it has none any more",
}
"""Comments of columns with the same meaning in every table."""


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
    found = _LAYOUT.search(description or "")
    return int(found[1]) if found else 1


@dataclass(frozen=True, eq=False)
class Table:
    """Definition of a Delta table. ``columns`` are all; those in ``partition_by`` are not in the files.

    ``constraints`` are CHECKs by name. ``statistics_on``: columns whose least and greatest values readers use to
    skip files. ``dictionary_encoded``: Parquet columns (with paths such as ``matches.list.element.outcome``) with few
    distinct values; ``delta_encoded``: integer columns whose neighbouring values are close.
    """

    name: str
    comment: str
    columns: Sequence[pa.Field]
    partition_by: tuple[str, ...] = ("broker_name",)
    constraints: Mapping[str, str] = field(default_factory=dict)
    statistics_on: tuple[str, ...] = ()
    dictionary_encoded: tuple[str, ...] = ()
    delta_encoded: tuple[str, ...] = ()

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

    def writer(self, sink: pa.NativeFile, schema: pa.Schema, plain: frozenset[str]) -> FileWriter:
        """A writer of a file of the table. ``plain``: ``dictionary_encoded`` columns with many distinct values."""
        return FileWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in self.dictionary_encoded if name not in plain],
            column_encoding=dict.fromkeys(self.delta_encoded, "DELTA_BINARY_PACKED")
            | {name: "DELTA_LENGTH_BYTE_ARRAY" for name in plain if pa.types.is_string(schema.field(name).type)},
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            write_statistics=list(self.statistics_on),
            write_page_checksum=True,
            store_schema=False,
        )
