"""Writes rows as JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.cli.json_lines import json_rows, json_text


def write_batches(kind: str, file: BinaryIO, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Writes rows as ``kind``: jsonl, csv or parquet. Returns the number of rows."""
    if kind == "parquet":
        return _write_parquet(file, batches, schema)
    if kind == "csv":
        file.write(_csv_row(schema.names).encode() + b"\n")
    written = 0
    for batch in batches:
        for line in json_rows([batch]) if kind == "jsonl" else _csv_rows(batch):
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        written += batch.num_rows
    return written


def _csv_rows(batch: pa.RecordBatch) -> Iterator[str]:
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        yield _csv_row([_cell(value) for value in row.values()])


def _csv_row(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value of a CSV cell: maps and lists as JSON, binary as hex."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=json_text)
    return value if value is None or isinstance(value, (str, int, bool)) else json_text(value)


def _write_parquet(file: BinaryIO, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    written = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch.cast(schema))
            written += batch.num_rows
    return written
