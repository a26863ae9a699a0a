"""Writes rows as JSON lines, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from jobs.cli.json_columns import hex_texts, json_lines, json_texts, parts


def write_batches(kind: str, file: BinaryIO, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Writes rows as ``kind``: jsonl, csv or parquet. Returns the number of rows."""
    if kind == "parquet":
        return _write_parquet(file, batches, schema)
    if kind == "csv":
        file.write(",".join(schema.names).encode() + b"\n")
    written = 0
    for batch in batches:
        for lines in json_lines(batch) if kind == "jsonl" else _csv_lines(batch):
            file.write(lines)
        written += batch.num_rows
    return written


def _csv_lines(batch: pa.RecordBatch) -> Iterator[pa.Buffer]:
    """Texts are in quotation marks, so that an empty text differs from null."""
    for rows in parts(batch):
        sink = pa.BufferOutputStream()
        cells = pa.RecordBatch.from_arrays([_cells(column) for column in rows.columns], rows.schema.names)
        pa_csv.write_csv(cells, sink, pa_csv.WriteOptions(include_header=False))
        yield sink.getvalue()


def _cells(column: pa.Array) -> pa.Array:
    """The cells of a column: maps and lists as JSON, binary as hex."""
    if pa.types.is_binary(column.type):
        return hex_texts(column)
    if pa.types.is_nested(column.type):
        return json_texts(column)
    return column


def _write_parquet(file: BinaryIO, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    written = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch.cast(schema))
            written += batch.num_rows
    return written
