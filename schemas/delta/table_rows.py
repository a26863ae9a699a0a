"""Reads rows of a table with PyArrow, without a Spark session.

pyarrow.dataset, which ``Table.group_by`` loads, too, would do this, but takes 14 ms to import.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from filtering.frozen import frozen
from schemas.delta.delta_log import open_data_file
from schemas.delta.table import StoredFile, Table
from schemas.spark_tasks import run_in_threads
from schemas.storage import Storage


@frozen
class Condition:
    """A condition on one column: at least ``low``, less than ``below``, and one of ``values``; None: no limit."""

    column: str
    low: Any = None
    below: Any = None
    values: Collection[Any] | None = None

    def mask(self, rows: pa.Table) -> pa.BooleanArray:
        """A mask of the rows for which it holds."""
        column = rows[self.column]
        mask = pc.is_valid(column)
        if self.low is not None:
            mask = pc.and_kleene(mask, pc.greater_equal(column, self.low))
        if self.below is not None:
            mask = pc.and_kleene(mask, pc.less(column, self.below))
        if self.values is not None:
            mask = pc.and_kleene(mask, _is_in(column, self.values))
        return mask.fill_null(False)

    def may_hold(self, least: Any, greatest: Any) -> bool:
        """Whether it may hold for a row whose value is between two values, both inclusive."""
        return (
            (self.low is None or greatest >= self.low)
            and (self.below is None or least < self.below)
            and (self.values is None or any(least <= value <= greatest for value in self.values))
        )


def _is_in(column: pa.ChunkedArray, values: Collection[Any]) -> pa.ChunkedArray:
    """A mask of the values that are one of some."""
    if not pa.types.is_dictionary(column.type):
        return pc.is_in(column, value_set=pa.array(list(values), column.type))
    wanted = pa.array(list(values), column.type.value_type)
    masks = [pc.is_in(chunk.dictionary, value_set=wanted).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(masks, pa.bool_())


Where = Sequence[Condition]
"""Conditions that must all hold."""


def within(column: str, low: Any = None, below: Any = None) -> Condition:
    """The condition that a column is at least ``low`` and less than ``below``."""
    return Condition(column, low, below)


def present(column: str) -> Condition:
    """The condition that a column has a value."""
    return Condition(column)


def one_of(column: str, values: Collection[Any]) -> Condition:
    """The condition that a column has one of some values."""
    return Condition(column, values=values)


_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def read_rows(
    table: Table,
    storage: Storage,
    paths: Sequence[str],
    columns: Sequence[str] | None = None,
    where: Where = (),
    dictionaries: Sequence[str] = (),
) -> pa.Table:
    """The rows of some files of a table, in their order. ``columns``: of the files, None for all.

    ``dictionaries``: columns of texts to read as dictionaries.
    """
    names = list(table.file_schema.names if columns is None else columns)
    fields = (table.file_schema.field(name) for name in names)
    wanted = pa.schema([field.with_type(_DICTIONARY) if field.name in dictionaries else field for field in fields])

    def read(path: str) -> list[pa.Table]:
        return [part.cast(wanted) for part in row_groups(table, storage, path, names, where, dictionaries)]

    in_files = map(read, paths) if len(paths) < FILES_IN_ONE_THREAD else run_in_threads(paths, read)
    return pa.concat_tables([wanted.empty_table(), *(part for parts in in_files for part in parts)])


FILES_IN_ONE_THREAD = 4
"""From so many files on, several are read at once."""


def row_groups(
    table: Table,
    storage: Storage,
    path: str,
    columns: Sequence[str] | None = None,
    where: Where = (),
    dictionaries: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """The rows of a file of a table, row group by row group. ``columns``: of the files, None for all.

    ``dictionaries``: columns of texts to read as dictionaries where they are stored so.
    """
    names = list(table.file_schema.names if columns is None else columns)
    conditions = {condition.column for condition in where}
    with open_data_file(table, storage, path, dictionaries) as file:
        has_values = all(map(file.has, conditions))  # no condition holds without one
        for number, group in enumerate(file.row_groups):
            if has_values and may_hold(group, where):
                rows = file.read(number, [*dict.fromkeys([*names, *conditions])])
                yield filtered(rows, where).select(names)


def may_hold(group: pq.RowGroupMetaData, where: Where) -> bool:
    """Whether all conditions may hold for some row of a row group, by its statistics."""
    for index in range(group.num_columns) if where else ():
        column = group.column(index)
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        for condition in where:
            if column.path_in_schema == condition.column and not condition.may_hold(statistics.min, statistics.max):
                return False
    return True


def files_that_may_hold(files: Sequence[StoredFile], where: Where) -> list[StoredFile]:
    """The files that may have a row for which all conditions hold, by their statistics in the Delta log."""
    return [
        file
        for file in files
        if all(
            condition.may_hold(file.least[condition.column], file.greatest[condition.column])
            for condition in where
            if condition.column in file.least and condition.column in file.greatest
        )
    ]


def filtered(rows: pa.Table, where: Where) -> pa.Table:
    """The rows for which all conditions hold."""
    for condition in where:
        rows = filtered_by_mask(rows, condition.mask(rows))
    return rows


def filtered_by_mask(rows: pa.Table, mask: pa.BooleanArray) -> pa.Table:
    """The rows that a mask without nulls selects: the same table, not a copy, if it selects all."""
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def without(rows: pa.Table, where: Where) -> pa.Table:
    """The rows for which some condition does not hold."""
    return rows.filter(pc.invert(reduce(pc.and_, [condition.mask(rows) for condition in where])))


def tuples(rows: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The values of some columns, row by row."""
    return zip(*(rows[name].to_pylist() for name in columns), strict=True)


def sorted_by(rows: pa.Table, *columns: str) -> pa.Table:
    """The rows in ascending order of some columns, stable."""
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns]))


# Sums and extremes of columns by group.


Key = tuple[Any, ...]


def group_numbers(rows: pa.Table, by: Sequence[str]) -> tuple[list[Key], NDArray[np.int64]]:
    """The distinct values of some columns, and for each row the index of its values."""
    codes = np.zeros(len(rows), np.int64)
    dictionaries: list[list[Any]] = []
    for name in by:
        column = rows[name].combine_chunks()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode(null_encoding="encode")
        dictionaries.append([*column.dictionary.to_pylist(), None][: len(column.dictionary) + (column.null_count > 0)])
        codes = codes * max(1, len(dictionaries[-1])) + column.indices.fill_null(len(column.dictionary)).to_numpy()
    possible = math.prod(map(len, dictionaries))
    if possible <= len(rows):
        is_there = np.zeros(possible, bool)
        is_there[codes] = True
        distinct, numbers = np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[codes]
    else:
        distinct, numbers = np.unique(codes, return_inverse=True)
    values: list[list[Any]] = []
    for dictionary in reversed(dictionaries):
        distinct, at = np.divmod(distinct, max(1, len(dictionary)))
        values.append([dictionary[each] for each in at.tolist()])
    return list(zip(*reversed(values), strict=True)), numbers.reshape(-1)


def positions_by(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[Key, NDArray[np.int64]]]:
    """The distinct values of some columns, each with the positions of its rows, ascending."""
    keys, numbers = group_numbers(rows, by)
    # NumPy sorts numbers of 16 bits in linear time.
    order = np.argsort(numbers.astype(np.uint16) if len(keys) <= 1 << 16 else numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(keys)))
    return zip(keys, np.split(order, ends[:-1]), strict=False)  # without rows, there is one empty part


def sums(rows: pa.Table, by: Sequence[str], columns: Sequence[str]) -> dict[Key, dict[str, int]]:
    """By the values of ``by``, the sums of one or more integer columns."""
    keys, numbers = group_numbers(rows, by)
    totals = []
    for name in columns:
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, numbers, rows[name].to_numpy())
        totals.append(total.tolist())
    rows_of_totals = zip(*totals, strict=True)
    return {key: dict(zip(columns, row, strict=True)) for key, row in zip(keys, rows_of_totals, strict=True)}


def sums_of_parts(parts: Iterable[pa.Table], by: Sequence[str], columns: Sequence[str]) -> dict[Key, dict[str, int]]:
    """The same of rows that come in parts, of which only one is in memory."""
    totals: dict[Key, dict[str, int]] = {}
    for part in parts:
        for key, more in sums(part, by, columns).items():
            known = totals.setdefault(key, more)
            if known is not more:
                for name in columns:
                    known[name] += more[name]
    return totals


def greatest(rows: pa.Table, by: Sequence[str], column: str) -> dict[Key, int]:
    """By the values of ``by``, the greatest value of an integer column."""
    return _extremes(rows, by, column, np.maximum, np.iinfo(np.int64).min)


def least(rows: pa.Table, by: Sequence[str], column: str) -> dict[Key, int]:
    """By the values of ``by``, the least value of an integer column."""
    return _extremes(rows, by, column, np.minimum, np.iinfo(np.int64).max)


def _extremes(rows: pa.Table, by: Sequence[str], column: str, extreme: np.ufunc, first: int) -> dict[Key, int]:
    keys, numbers = group_numbers(rows, by)
    extremes = np.full(len(keys), first)
    extreme.at(extremes, numbers, rows[column].to_numpy())
    return dict(zip(keys, extremes.tolist(), strict=True))
