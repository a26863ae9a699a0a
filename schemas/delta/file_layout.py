"""How rows are laid out in a Parquet file: its columns, and which of them have dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrow_batches import of_one_type
from schemas.delta.table import Table

SAMPLE = 4096
"""Values of a column that decide whether a dictionary pays off."""


def file_schema(table: Table, rows: pa.Table, before: pa.Schema | None) -> pa.Schema:
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
        pa.chunked_array(of_one_type([batch.column(index) for batch in batches]))
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
