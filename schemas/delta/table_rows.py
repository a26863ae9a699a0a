"""Reads rows of a table with PyArrow, without a Spark session.

pyarrow.dataset, which ``Table.group_by`` loads, too, would do this, but takes 14 ms to import.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.delta.data_files import StoredFile
from schemas.delta.open_data_file import open_data_file
from schemas.delta.table import Table
from schemas.storage import Storage


@dataclass(frozen=True)
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
            wanted = pa.array(list(self.values), column.type)
            mask = pc.and_kleene(mask, pc.is_in(column, value_set=wanted))
        return mask.fill_null(False)

    def may_hold(self, least: Any, greatest: Any) -> bool:
        """Whether it may hold for a row whose value is between two values, both inclusive."""
        return (
            (self.low is None or greatest >= self.low)
            and (self.below is None or least < self.below)
            and (self.values is None or any(least <= value <= greatest for value in self.values))
        )


Where = Sequence[Condition]
"""Conditions that must all hold."""


def within(column: str, low: Any = None, below: Any = None) -> Condition:
    """The condition that a column is at least ``low`` and less than ``below``."""
    return Condition(column, low, below)


def one_of(column: str, values: Collection[Any]) -> Condition:
    """The condition that a column has one of some values."""
    return Condition(column, values=values)


def read_rows(
    table: Table, storage: Storage, paths: Sequence[str], columns: Sequence[str] | None = None, where: Where = ()
) -> pa.Table:
    """The rows of some files of a table. ``columns``: of the files, None for all."""
    names = list(table.file_schema.names if columns is None else columns)
    wanted = pa.schema([table.file_schema.field(name) for name in names])
    parts = [part for path in paths for part in row_groups(table, storage, path, names, where)]
    return pa.concat_tables([wanted.empty_table(), *(part.cast(wanted) for part in parts)])


def row_groups(
    table: Table, storage: Storage, path: str, columns: Sequence[str] | None = None, where: Where = ()
) -> Iterator[pa.Table]:
    """The rows of a file of a table, row group by row group. ``columns``: of the files, None for all."""
    names = list(table.file_schema.names if columns is None else columns)
    conditions = {condition.column for condition in where}
    with open_data_file(table, storage, path) as file:
        for number, group in enumerate(file.row_groups):
            if may_hold(group, where):
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
        rows = chosen(rows, condition.mask(rows))
    return rows


def chosen(rows: pa.Table, mask: pa.BooleanArray) -> pa.Table:
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
