"""Writes rows as JSON lines, CSV or Parquet: Arrow columns become JSON all rows at once.

Python's JSON encoder takes one row after another, and ten times as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from filtering.java import unchecked_string_array

ROWS_AT_ONCE = 1 << 16
BYTES_AT_ONCE = 1 << 26
"""Arrow's texts have room for less than 2 GiB, and JSON may take six times as many bytes as a text."""
_ESCAPED = r'["\\\x00-\x1f]'
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two digits of each octet."""


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
    for rows in _parts(batch):
        sink = pa.BufferOutputStream()
        cells = pa.RecordBatch.from_arrays([_cells(column) for column in rows.columns], rows.schema.names)
        pa_csv.write_csv(cells, sink, pa_csv.WriteOptions(include_header=False))
        yield sink.getvalue()


def _cells(column: pa.Array) -> pa.Array:
    """The cells of a column: maps and lists as JSON, binary as hex."""
    if pa.types.is_binary(column.type):
        return _hex_texts(column)
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


def json_lines(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """The rows as JSON objects in UTF-8, each with a line end, some rows at once. For types, see :func:`json_texts`."""
    for rows in _parts(batch):
        pieces: list[str | pa.StringArray] = []
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            pieces += [f"{', ' if pieces else '{'}{json.dumps(name, ensure_ascii=False)}: ", _or_null(column)]
        lines = _joined([*pieces, "}\n"])
        _, offsets, data = lines.buffers()
        yield memoryview(data)[: np.frombuffer(offsets, np.int32)[len(lines)]]


def json_texts(column: pa.Array) -> pa.StringArray:
    """The JSON text of each value: binary as lower-case hex, maps as objects, dates as ISO 8601. Null has no text.

    Raises TypeError for other types than these, lists, texts, integers and booleans.
    """
    kind = column.type
    if pa.types.is_string(kind):
        encoded = column.dictionary_encode()
        return _quoted(encoded.dictionary).take(encoded.indices)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_date32(kind):
        return _joined(['"', column.cast(pa.string()), '"'])
    if pa.types.is_binary(kind):
        return _joined(['"', _hex_texts(column), '"'])
    if pa.types.is_map(kind):
        lists = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        names, values = (_or_null(part) for part in lists.flatten().flatten())
        return _joined(["{", _lists_joined(lists, _joined([names, ": ", values])), "}"])
    if pa.types.is_list(kind):
        return _joined(["[", _lists_joined(column, _or_null(column.flatten())), "]"])
    raise TypeError(f"no JSON for columns of {kind}")


def _or_null(column: pa.Array) -> pa.StringArray:
    return json_texts(column).fill_null("null")


def _hex_texts(column: pa.BinaryArray) -> pa.StringArray:
    """The octets of each value in lower-case hex."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    octets = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return unchecked_string_array(2 * (offsets - offsets[0]), _HEX[octets].view(np.uint8), missing)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most ROWS_AT_ONCE rows and BYTES_AT_ONCE bytes, or of one row."""
    if batch.num_rows > 1 and (batch.num_rows > ROWS_AT_ONCE or batch.nbytes > BYTES_AT_ONCE):
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    quoted = _joined(['"', texts, '"'])
    is_escaped = pc.match_substring_regex(texts, _ESCAPED)
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(is_escaped).to_pylist()]
    return pc.replace_with_mask(quoted, is_escaped, pa.array(escaped, pa.string()))


def _lists_joined(column: pa.ListArray, texts: pa.StringArray) -> pa.StringArray:
    """The texts of each list's elements with commas between them; null for a list that is null."""
    lengths = pc.list_value_length(column)
    ends = np.cumsum(lengths.fill_null(0).to_numpy(), dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), texts)
    return pc.if_else(lengths.is_valid(), pc.binary_join(lists, ", "), None)


def _joined(pieces: Sequence[str | pa.StringArray]) -> pa.StringArray:
    """The pieces of each row, one after another; null if one is null."""
    return pc.binary_join_element_wise(*pieces, "")
