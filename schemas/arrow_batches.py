"""Arrow tables and record batches: makes, collects and splits them, and fills columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def schema_of(columns: str) -> pa.Schema:
    """Columns by their names and Arrow types, as in ``run string, messages int64``."""
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in map(str.split, columns.split(", "))])


def table_of(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """A table of some rows, whose values are in the order of its columns."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def as_dictionaries(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as dictionaries, with maps as dictionaries: Arrow's to_pylist takes ten times as long for maps."""
    columns = [
        _maps(one_array(column)) if pa.types.is_map(column.type) else column.to_pylist() for column in rows.columns
    ]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _maps(column: pa.MapArray) -> list[dict[str, Any] | None]:
    bounds, is_valid = column.offsets.to_pylist(), column.is_valid().to_pylist()
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    return [
        dict(zip(keys[begin:end], items[begin:end], strict=True)) if valid else None
        for (begin, end), valid in zip(pairwise(bounds), is_valid, strict=True)
    ]


def gathered(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[list[pa.RecordBatch]]:
    """The same batches in lists of at least ``rows`` rows or ``size`` bytes. Only the last may have less."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= rows or sum(part.nbytes for part in waiting) >= size:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def split(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """The same rows in lists of batches with ``rows`` rows together. Only the last may have fewer."""
    part: list[pa.RecordBatch] = []
    room = rows
    for batch in batches:
        while batch.num_rows > room:
            yield [*part, batch.slice(0, room)]
            batch = batch.slice(room)
            part, room = [], rows
        part.append(batch)
        room -= batch.num_rows
    if part:
        yield part


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    """A column with one text. It is a dictionary: Parquet's writer hashes each value of other columns."""
    return dictionary_column([text], np.zeros(rows, np.int32))


def dictionary_column(texts: Iterable[str], numbers: NDArray[np.integer[Any]]) -> pa.DictionaryArray:
    """A column with the text of each number, as a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(list(texts), pa.string()))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column: its only chunk, which PyArrow's combine_chunks would copy, or all chunks as one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def codes(*columns: pa.ChunkedArray) -> NDArray[np.int64]:
    """A number for each value of some columns of one type, one after another: the same for equal values; null: -1."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pa.chunked_array(chunks, columns[0].type).combine_chunks().dictionary_encode()
    numbers: NDArray[np.int64] = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return numbers


def replaced(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    """The rows with other values in some columns."""
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def as_one_type(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns of texts, some of which may be dictionaries, as one type: dictionaries if all with a text are."""
    if len({array.type for array in arrays}) == 1:
        return list(arrays)
    dictionaries = [array.type for array in arrays if pa.types.is_dictionary(array.type)]
    if any(array.null_count < len(array) for array in arrays if not pa.types.is_dictionary(array.type)):
        return [decoded(array) for array in arrays]
    return [array if pa.types.is_dictionary(array.type) else pa.nulls(len(array), dictionaries[0]) for array in arrays]


def decoded(array: pa.Array) -> pa.Array:
    """A column that is not a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
