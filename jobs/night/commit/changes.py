"""The changes that a run will commit: files of workers, rows of the driver, and removed files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.arrow_batches import split
from schemas.delta.data_files import ROWS_OF_A_GROUP, DataFile, DataFileWriter, StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import Where, row_groups, without
from schemas.delta.warehouse import Warehouse
from schemas.tables import APPENDED_TABLES
from schemas.withdrawals import Withdrawal


@dataclass
class Changes:
    """The files that a run adds to and removes from the tables of one broker.

    ``withdrawn``: the rows of earlier runs that it removes from tables to which nights otherwise only add.
    """

    warehouse: Warehouse
    broker_name: str
    run: str
    withdrawn: list[Withdrawal] = field(default_factory=list)
    _added: defaultdict[str, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    _removed: defaultdict[str, list[StoredFile]] = field(default_factory=lambda: defaultdict(list))
    _touched: dict[str, Table] = field(default_factory=dict)
    _rows_kept: Counter[str] = field(default_factory=Counter)
    """Rows of earlier runs in merged files."""
    _rewritten: set[str] = field(default_factory=set)
    """Paths of added files whose rows are all of earlier runs."""

    def files(self, table: Table) -> list[StoredFile]:
        """The broker's files of a table, with added files and without removed files."""
        removed = {file.path for file in self._removed[table.name]}
        committed = [file for file in self.warehouse.files(table, self.broker_name) if file.path not in removed]
        return committed + [StoredFile.from_data_file(file, self._broker_of(table)) for file in self._added[table.name]]

    def rows(self, table: Table, columns: Sequence[str] | None = None, where: Where = ()) -> pa.Table:
        """The broker's rows of a table, with those that the run has added, and without those that it has removed."""
        return self.warehouse.rows(table, columns, where, self.files(table))

    def add_files(self, table: Table, files: Iterable[DataFile]) -> None:
        added = list(files)
        if added:
            self._touched[table.name] = table
            self._added[table.name] += added

    def add_rows(self, table: Table, batches: Sequence[pa.RecordBatch]) -> None:
        if sum(batch.num_rows for batch in batches):
            self.add_files(table, self._write(table, batches))

    def replace_rows(self, table: Table, batches: Sequence[pa.RecordBatch]) -> None:
        """Replaces all rows that the table has of the broker."""
        files = self.files(table)
        if any(self._is_of_earlier_runs(table, file) for file in files):
            self.withdraw(table, ())
        self.remove_files(table, files)
        self.add_rows(table, batches)

    def delete_rows(self, table: Table, where: Where) -> None:
        """Removes the rows that match ``where``."""
        columns = [condition.column for condition in where]
        for file in self.files(table):
            if len(self.warehouse.rows(table, columns, where, [file])):
                rewritten = self._without_rows(table, where, file)
                if self._is_of_earlier_runs(table, file):
                    self.withdraw(table, where)
                    self._rewritten.update(new.path for new in rewritten)
                self.remove_files(table, [file])
                self.add_files(table, rewritten)

    def _without_rows(self, table: Table, where: Where, file: StoredFile) -> list[DataFile]:
        """Writes a file again without the rows that match ``where``. A row group stays one."""
        storage = self.warehouse.log(table).storage
        writer = DataFileWriter(table, storage)
        for rows in row_groups(table, storage, file.path):
            kept = without(rows, where)
            if len(kept):
                writer.write(kept.to_batches())
        return writer.close()

    def withdraw(self, table: Table, where: Where) -> None:
        """Notes that the rows of earlier runs that match ``where`` are removed, or made again."""
        if table in APPENDED_TABLES:
            self.withdrawn.append(Withdrawal(table.name, where))

    def replace_files(self, table: Table, old: Sequence[StoredFile], new: Sequence[DataFile]) -> None:
        """Replaces files by others with the same rows."""
        self._rows_kept[table.name] += sum(file.rows for file in old if self._is_of_earlier_runs(table, file))
        self.remove_files(table, old)
        self.add_files(table, new)

    def added_rows(self, table: Table) -> int:
        """The number of rows that the run adds."""
        added = (file.rows for file in self._added[table.name] if file.path not in self._rewritten)
        return sum(added) - self._rows_kept[table.name]

    @property
    def tables(self) -> list[Table]:
        return list(self._touched.values())

    def create_missing(self, tables: Iterable[Table]) -> None:
        """Creates tables that do not exist yet, so that workers can write into their folders."""
        for table in tables:
            log = self.warehouse.log(table)
            if not log.exists:
                log.storage.make()
                log.create()
                self._touched[table.name] = table

    def commit(self) -> None:
        """Commits each table once."""
        for name, table in self._touched.items():
            if self._added[name] or self._removed[name]:
                self.warehouse.log(table).commit(
                    self._added[name], self._removed[name], self._broker_of(table), self.run
                )

    def _write(self, table: Table, batches: Sequence[pa.RecordBatch]) -> list[DataFile]:
        self.create_missing([table])
        writer = DataFileWriter(table, self.warehouse.log(table).storage)
        for part in split(batches, ROWS_OF_A_GROUP):
            writer.write(part)
        return writer.close()

    def remove_files(self, table: Table, files: Iterable[StoredFile]) -> None:
        """Forgets files that this run added; the commit removes the others."""
        for file in files:
            self._touched[table.name] = table
            added = [other for other in self._added[table.name] if other.path == file.path]
            if added:
                self._added[table.name].remove(added[0])
            else:
                self._removed[table.name].append(file)

    def _is_of_earlier_runs(self, table: Table, file: StoredFile) -> bool:
        return file.path in self._rewritten or all(added.path != file.path for added in self._added[table.name])

    def _broker_of(self, table: Table) -> str | None:
        return self.broker_name if table.partition_by else None
