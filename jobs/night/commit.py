"""The changes that a run will commit, and the commit.

Changes collects files of workers, rows of the driver, and removed rows, and shows the tables as they will be. Then
small files of earlier nights are merged (:func:`compact`), and :func:`commit` commits each table once and the ledger
last.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from schemas.arrow_batches import gathered, split
from schemas.delta.table import ROWS_OF_A_GROUP, DataFile, DataFileWriter, StoredFile, Table
from schemas.delta.table_rows import Where, row_groups, without
from schemas.delta.warehouse import Warehouse
from schemas.ledger_check import Withdrawal
from schemas.run_ledger import RUN_LEDGER, LedgerEntry
from schemas.tables import APPENDED_TABLES, TABLES


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

    def rows(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        where: Where = (),
        dictionaries: Sequence[str] = (),
    ) -> pa.Table:
        """The broker's rows of a table, with those that the run has added, and without those that it has removed.

        ``dictionaries``: columns of texts to read as dictionaries.
        """
        return self.warehouse.rows(table, columns, where, self.files(table), dictionaries)

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
        if self._rewrite_without(table, where):
            self.withdraw(table, where)

    def update_rows(self, table: Table, where: Where, batches: Sequence[pa.RecordBatch]) -> None:
        """Replaces the rows that match ``where`` by the same rows with other values: what became of them since."""
        self._rewrite_without(table, where)
        written = self._write(table, batches)
        self._rewritten.update(file.path for file in written)
        self.add_files(table, written)

    def _rewrite_without(self, table: Table, where: Where) -> bool:
        """Writes the files with rows that match ``where`` again without them. Whether earlier runs wrote any."""
        columns = [condition.column for condition in where]
        is_any_earlier = False
        for file in self.files(table):
            if len(self.warehouse.rows(table, columns, where, [file])):
                rewritten = self._without_rows(table, where, file)
                if self._is_of_earlier_runs(table, file):
                    is_any_earlier = True
                    self._rewritten.update(new.path for new in rewritten)
                self.remove_files(table, [file])
                self.add_files(table, rewritten)
        return is_any_earlier

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


# Merges small files of earlier nights, so that tables stay fast to read after a thousand nights.
#
# Files are sorted into tiers by size. A tier's sizes are FILES_IN_A_TIER times those of the one before. The files of a
# full tier become one file, as in a log-structured merge tree; it is of the next tier if it is large enough. A large
# night writes large files, which stay as they are: its time must not go into merging in the driver.


FILES_IN_A_TIER = 16
SMALLEST = 64 << 10
"""Bytes of the largest file in the first tier."""
LARGE = 2 << 20
"""Files of this size (bytes) and more are not merged."""
MOST_BYTES = 64 << 20
"""Bytes of a table that a night merges. Other full tiers wait for later nights."""
ROW_GROUP_BYTES = 32 << 20


def compact(table: Table, changes: Changes) -> None:
    """Merges the broker's files of a table until no tier is full, or MOST_BYTES are merged."""
    merged = 0
    while (files := _full_tier(changes.files(table))) is not None:
        merged += sum(file.size for file in files)
        if merged > MOST_BYTES:
            return
        writer = DataFileWriter(table, changes.warehouse.log(table).storage)
        for group in _row_groups(table, files, changes):
            writer.write(group)
        changes.replace_files(table, files, writer.close())


def _full_tier(files: list[StoredFile]) -> list[StoredFile] | None:
    """The files of the lowest full tier in the order of their rows; None if no tier is full."""
    tiers: defaultdict[int, list[StoredFile]] = defaultdict(list)
    for file in files:
        if file.size < LARGE:
            tiers[_tier(file.size)].append(file)
    full = [tier for tier, tier_files in tiers.items() if len(tier_files) >= FILES_IN_A_TIER]
    return sorted(tiers[min(full)], key=_order)[:FILES_IN_A_TIER] if full else None


def _tier(size: int) -> int:
    tier, largest = 0, SMALLEST
    while size > largest:
        tier, largest = tier + 1, largest * FILES_IN_A_TIER
    return tier


def _order(file: StoredFile) -> tuple[int, str, str]:
    """The sort key of a file: its first physical offset, if the table has one, then its run."""
    return file.least.get("commitlog_offset", 0), str(file.least.get("run", "")), file.path


def _row_groups(table: Table, files: list[StoredFile], changes: Changes) -> Iterator[list[pa.RecordBatch]]:
    storage = changes.warehouse.log(table).storage
    stored = (rows for file in files for rows in row_groups(table, storage, file.path))
    batches = (
        batch for rows in stored for batch in rows.cast(table.file_schema).to_batches(max_chunksize=ROWS_OF_A_GROUP)
    )
    return gathered(batches, ROWS_OF_A_GROUP, ROW_GROUP_BYTES)


# The commit: names of runs, and their ledger entries.


def next_run(entries: Iterable[LedgerEntry]) -> str:
    """The name of a new run: its start time, UTC, and later than earlier runs even if the clock was set back."""
    now = time.time_ns() // 1_000_000
    last = max((entry.maintained or entry.run for entry in entries), default="")
    if last >= _iso_time(now):
        now = round(datetime.fromisoformat(last).timestamp() * 1000) + 1
    return _iso_time(now)


def commit(changes: Changes, entry: LedgerEntry) -> LedgerEntry:
    """Commits each table, and then the ledger. Returns the entry with the rows and the states of the tables."""
    changes.commit()
    rows = {table.name: added for table in TABLES if (added := changes.added_rows(table))}
    return record(changes.warehouse, replace(entry, rows=rows))


def record(warehouse: Warehouse, entry: LedgerEntry) -> LedgerEntry:
    """Writes an entry with the present states of all tables, which the next run expects. Returns it."""
    tables = {table.name: warehouse.log(table).state() for table in TABLES if warehouse.exists(table)}
    complete = replace(entry, tables=tables)
    ledger = Changes(warehouse, entry.broker_name, entry.run)
    ledger.add_rows(RUN_LEDGER, [RUN_LEDGER.rows_batch([complete.table_row()])])
    compact(RUN_LEDGER, ledger)
    ledger.commit()
    return complete


def _iso_time(milliseconds: int) -> str:
    instant = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
