"""The Delta log of one table: which files it has, and commits of files that workers wrote."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder
from deltalake.exceptions import DeltaError
from deltalake.exceptions import TableNotFoundError as NotFound
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from filtering.frozen import frozen
from schemas.delta.table import (
    FORMER_NAMES,
    LAYOUT,
    DataFile,
    DataFileWriter,
    StoredFile,
    Table,
    layout_of,
    statistics,
)
from schemas.errors import PROGRAM, UsageError, WarehouseBusy, option
from schemas.storage import Storage

RUN_KEY = "mqsieve.run"
_UPGRADE_KEY = "mqsieve.upgrade"
_MAINTENANCE = frozenset(
    {
        "OPTIMIZE", "VACUUM START", "VACUUM END", "VACUUM", "SET TBLPROPERTIES", "COMPUTE STATS", "ADD COLUMN",
        "CHANGE COLUMN", "UPDATE TABLE METADATA",
    }
)  # fmt: skip
"""Operations that leave the rows of a table unchanged."""


class TableDamaged(UsageError):
    """A table differs from what the last run left. The message says how."""


@frozen
class TableState:
    """A table after a run: its version, its number of rows, and a digest of its list of files."""

    version: int
    rows: int
    digest: str


class DeltaLog:
    """The Delta log of the table in a folder. Reading a table that does not exist raises TableDamaged."""

    def __init__(self, table: Table, storage: Storage) -> None:
        self.table = table
        self.storage = storage
        self.pinned: int | None = None
        self._opened: DeltaTable | None = None

    def pin(self, version: int | None) -> None:
        """Sets the version of the table that readers see; None: the last one."""
        if version != self.pinned and (version is None or self._opened is None or self._opened.version() != version):
            self._forget()
        self.pinned = version

    @property
    def exists(self) -> bool:
        """Whether the table exists. Raises TableDamaged if its log cannot be read, UsageError if it may not be."""
        if self._opened is None:
            try:
                self._opened = DeltaTable(self.storage.root, version=self.pinned)
            except NotFound:
                return False
            except (DeltaError, OSError) as error:
                for folder in (self.storage, self.storage.child("_delta_log")):
                    folder.check_access()
                reason = str(error).splitlines()[0]
                raise TableDamaged(f"the Delta log of {self.table.name} cannot be read: {reason}") from None
        return True

    @property
    def _table(self) -> DeltaTable:
        if not self.exists or self._opened is None:
            raise TableDamaged(f"{self.table.name} is missing")
        return self._opened

    @property
    def version(self) -> int:
        """The version of the table; -1 if it does not exist."""
        return self._table.version() if self.exists else -1

    @property
    def layout(self) -> int:
        """The layout of the table."""
        return layout_of(self._table.metadata().description)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the table has."""
        return pa.schema(self._table.schema().to_arrow())

    @property
    def empty_version(self) -> int:
        """The version of the table as :meth:`create` leaves it."""
        return 1 if self.table.constraints else 0

    def register(self, engine: QueryBuilder, name: str) -> None:
        """Registers the table, in the version that readers see, with an SQL engine."""
        engine.register(name, self._table)

    def create(self) -> None:
        """Creates an empty table, or completes one that a killed run began to create."""
        if not self.exists:
            self._opened = DeltaTable.create(
                self.storage.root,
                self.table.schema,
                mode="error",
                partition_by=list(self.table.partition_by),
                name=self.table.name,
                description=self.table.description,
                configuration=self.table.properties,
            )
        if self.version < self.empty_version:
            self._table.alter.add_constraint(dict(self.table.constraints))

    def upgrade(self) -> None:
        """Brings a table of an older layout up to date.

        Adds the columns that it lacks, null in its rows, lets others be null, too, and rewrites the files of a table
        with a column that has another name now.
        """
        if self.exists and self.layout < LAYOUT:
            if any(FORMER_NAMES.get(name) in self.schema.names for name in self.table.schema.names):
                self._rewrite()
            present = {field.name: field for field in self.schema}
            new = [Field.from_arrow(field) for field in self.table.schema if field.name not in present]
            if new:
                self._table.alter.add_columns(new)
            for field in self.table.schema:
                if field.nullable and field.name in present and not present[field.name].nullable:
                    self._table.alter.drop_column_not_null(field.name)
            self._table.alter.set_table_description(self.table.description)
            self._forget()

    def _rewrite(self) -> None:
        """Writes all rows once more, under the names that columns have now."""
        added: list[AddAction | RemoveAction] = []
        for stored in self.files:
            writer = DataFileWriter(self.table, self.storage)
            with open_data_file(self.table, self.storage, stored.path) as file:
                for group in range(len(file.row_groups)):
                    writer.write(file.read(group).to_batches())
            added += [self._add_action(file, stored.broker_name) for file in writer.close()]
        properties = CommitProperties(custom_metadata={_UPGRADE_KEY: str(LAYOUT)})
        columns, partition_by = self.table.schema, list(self.table.partition_by)
        self._table.create_write_transaction(added, "overwrite", columns, partition_by, commit_properties=properties)
        self._forget()

    @cached_property
    def files(self) -> list[StoredFile]:
        """The files of the table as it is now. Raises TableDamaged if the log lacks statistics of one."""
        if not self.exists:
            return []
        files = _files(self._table)
        for file in files:
            if file.rows is None or not {*self.table.known_statistics} <= file.least.keys() & file.greatest.keys():
                raise TableDamaged(f"the Delta log of {self.table.name} has no statistics of {file.path}")
        return files

    def files_at(self, version: int) -> list[StoredFile]:
        """The files that the table had at a version. Raises DeltaError if its log does not go back that far."""
        return _files(DeltaTable(self.storage.root, version=version))

    def state(self) -> TableState:
        """The table as it is now."""
        paths = sorted(f"{file.path}:{file.size}" for file in self.files)
        digest = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:32]
        return TableState(self.version, sum(file.rows for file in self.files), digest)

    def operations_since(self, version: int) -> list[dict[str, Any]]:
        """The commits after a version, the last first."""
        behind = self.version - version
        return self._table.history(behind) if behind > 0 else []

    def commit(
        self, added: Sequence[DataFile], removed: Collection[StoredFile], broker_name: str | None, run: str
    ) -> None:
        """Adds and removes files in one commit; the new ones are the broker's if the table is partitioned by it.

        Raises WarehouseBusy if another program changed the table meanwhile. The next run then undoes the commit.
        """
        if not self.exists:
            self.create()
        version = self.version
        self._commit(added, removed, broker_name, run)
        # Delta lets a commit follow one that removed the same files: their rows would be in the table twice.
        if self.version != version + 1:
            raise WarehouseBusy(f"another program changed {self.table.name} meanwhile: run the same command again")
        if self.missing_files():
            raise WarehouseBusy(
                f"another program removed files of {self.table.name} that were just written (VACUUM without a "
                "retention?): run the same command again"
            )

    def append(self, added: Sequence[DataFile], run: str) -> None:
        """Adds files that are of no broker, whatever other programs commit meanwhile."""
        self._commit(added, (), None, run)

    def _commit(
        self, added: Sequence[DataFile], removed: Collection[StoredFile], broker_name: str | None, run: str
    ) -> None:
        actions: list[AddAction | RemoveAction] = [self._add_action(file, broker_name) for file in added]
        for file in removed:
            actions.append(RemoveAction(file.path, True, _now(), file.size, self._partition(file.broker_name)))
        self._table.create_write_transaction(
            actions,
            "append",
            self.table.schema,
            list(self.table.partition_by),
            commit_properties=CommitProperties(custom_metadata={RUN_KEY: run}),
        )
        self._update()

    def _add_action(self, file: DataFile, broker_name: str | None) -> AddAction:
        return AddAction(file.path, file.size, self._partition(broker_name), _now(), True, file.stats)

    def _partition(self, broker_name: str | None) -> dict[str, str | None]:
        return {"broker_name": broker_name} if self.table.partition_by else {}

    def restore(self, version: int, run: str) -> None:
        """Restores the rows of a version of the table in a new commit."""
        self._table.restore(version, commit_properties=CommitProperties(custom_metadata={RUN_KEY: run}))
        self._forget()
        self.upgrade()

    def clean(self, dry_run: bool = False) -> int:
        """Deletes data files that no version of the last week uses, and log entries older than 30 days.

        Returns the number of data files; ``dry_run`` only counts them.
        """
        deleted = self._table.vacuum(dry_run=dry_run, full=True)
        if dry_run:
            return len(deleted)
        self._table.create_checkpoint()
        self._table.cleanup_metadata()
        self._forget()
        return len(deleted)

    def drop(self) -> None:
        """Deletes the table with all of its files."""
        self.storage.clear()
        self._forget()
        self.pinned = None

    def missing_files(self) -> list[StoredFile]:
        """The files of the table that are missing or have another size."""
        present = {info.path: info.size for info in self.storage.files(recursive=True)}
        return [file for file in self.files if present.get(file.path) != file.size]

    def _forget(self) -> None:
        self._opened = None
        self.__dict__.pop("files", None)

    def _update(self) -> None:
        """Reads the commits since the table was opened, which is ten times as fast as to open it."""
        opened = self._opened
        self._forget()
        if opened is not None and self.pinned is None:
            with suppress(DeltaError, OSError):  # the next reader opens the table, and says what is wrong
                opened.update_incremental()
                self._opened = opened


def run_of(operation: dict[str, Any]) -> str | None:
    """The mqsieve run that made a commit; None if another program did."""
    run = operation.get(RUN_KEY)
    return None if run is None else str(run)


def leaves_rows(operation: dict[str, Any]) -> bool:
    """Whether a commit leaves the rows of a table unchanged: maintenance by other programs, or an upgrade."""
    return operation["operation"] in _MAINTENANCE or _UPGRADE_KEY in operation


def _now() -> int:
    return int(time.time() * 1000)


def _files(table: DeltaTable) -> list[StoredFile]:
    return [StoredFile.from_add_action(row) for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()]


# Opens Parquet files of tables for reading, and verifies the checksums of the pages that are read.


class DataFileDamaged(TableDamaged):
    """A data file is not what was written. ``reason``: what is wrong with it, in one line."""

    def __init__(self, folder: str, path: str, reason: str) -> None:
        super().__init__(folder, path, reason)
        self.reason = reason
        self.damage = f"{folder}/{path} is not what was written ({reason})"
        self.remedy = f"{PROGRAM} maintain --rebuild {option('warehouse', folder.rpartition('/')[0])}"

    def __str__(self) -> str:
        return f"{self.damage}: {self.remedy} rebuilds its table, or says what to put back from a copy"


class OpenDataFile:
    """An open file of a table. ``row_groups`` are the metadata of its row groups."""

    def __init__(self, table: Table, file: pq.ParquetFile, source: pa.NativeFile) -> None:
        self.row_groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        self._file = file
        self._source = source
        self._paths = _column_paths(file.metadata)
        self._types = {field.name: field.type for field in table.file_schema}
        stored = set(file.schema_arrow.names)
        names = ((name, name if name in stored else FORMER_NAMES.get(name)) for name in self._types)
        self._stored = {name: in_file for name, in_file in names if in_file in stored}

    def read(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns of a row group; None: all of the table's files. Columns that the file leaves out are null."""
        names = list(self._types if columns is None else columns)
        stored = {self._stored[name]: name for name in names if name in self._stored}
        rows = self._file.read_row_group(group, list(stored), use_threads=False)
        rows = rows.rename_columns([stored[name] for name in rows.column_names])
        for name in names:
            if name not in self._stored:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, self._types[name]))
        return rows.select(names)

    def has(self, column: str) -> bool:
        """Whether the file has values of a column."""
        return column in self._stored

    def may_have(self, group: int, column: str, text: str) -> bool:
        """Whether a row group may have a text in a column of texts: not if its Bloom filter, if any, says no."""
        if not self.has(column):
            return False
        bloom_filter = _bloom_filter(self._source, self.row_groups[group].column(self._paths.index(column)))
        return bloom_filter is None or bool(may_contain(bloom_filter, [text])[0])


def _bloom_filter(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> bytes | None:
    """The Bloom filter of a column in a row group, with its header; None if it has none."""
    offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
    return None if offset is None or length is None else source.read_at(length, offset)


@contextmanager
def open_data_file(
    table: Table, storage: Storage, path: str, read_dictionary: Sequence[str] = ()
) -> Iterator[OpenDataFile]:
    """Opens a file of a table. ``read_dictionary``: texts to read as dictionaries where they are stored so.

    Raises DataFileDamaged if the file is not what was written.
    """
    with _open(storage, path, read_dictionary) as (file, source):
        yield OpenDataFile(table, file, source)


@contextmanager
def _open(
    storage: Storage, path: str, read_dictionary: Sequence[str] = ()
) -> Iterator[tuple[pq.ParquetFile, pa.NativeFile]]:
    try:
        with storage.file_system.open_input_file(path) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            dictionaries = [name for name in read_dictionary if _may_be_dictionary(file.metadata, name)]
            if dictionaries:
                file = pq.ParquetFile(
                    source, metadata=file.metadata, read_dictionary=dictionaries, page_checksum_verification=True
                )
            yield file, source
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataFileDamaged(storage.root, path, str(error).strip().splitlines()[0]) from None


def _may_be_dictionary(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether PyArrow can read a column as a dictionary: it has values, and no row group has them delta-encoded."""
    paths = _column_paths(metadata)
    if name not in paths:
        return False
    groups = (metadata.row_group(group).column(paths.index(name)) for group in range(metadata.num_row_groups))
    return not any(encoding.startswith("DELTA_") for group in groups for encoding in group.encodings)


def _column_paths(metadata: pq.FileMetaData) -> list[str]:
    return [metadata.schema.column(index).path for index in range(metadata.num_columns)]


def verify_file(table: Table, storage: Storage, stored: StoredFile) -> None:
    """Reads a file of a table in full, column by column, and compares its rows and statistics with the Delta log.

    Bloom filters have no checksum: each must contain the column's values.

    Raises DataFileDamaged.
    """
    columns = table.known_statistics
    with _open(storage, stored.path, table.dictionary_texts) as (file, source):
        actual = statistics(file.metadata)
        least, greatest = (
            [values.get(name) for name in columns] for values in (actual["minValues"], actual["maxValues"])
        )
        known = stored.rows, [stored.least[name] for name in columns], [stored.greatest[name] for name in columns]
        if known != (actual["numRecords"], least, greatest):
            raise DataFileDamaged(storage.root, stored.path, "the Delta log has other statistics of it")
        for group in range(file.metadata.num_row_groups):
            for column in range(file.metadata.num_columns):
                rows = file.reader.read_row_group(group, column_indices=[column], use_threads=False)
                bloom_filter = _bloom_filter(source, file.metadata.row_group(group).column(column))
                if bloom_filter is not None:
                    texts = rows.column(0).drop_null().to_pylist()
                    if not may_contain(bloom_filter, texts).all():
                        raise DataFileDamaged(storage.root, stored.path, "a Bloom filter lacks a value of its column")


# Bloom filters of Parquet files: whether a row group may have a text in a column, without reading the column.
#
# PyArrow writes them, but does not read them. A filter is a header and blocks of 32 bytes; the hash of a text selects a
# block, and one bit in each of its eight words. Source: BloomFilter.md of Parquet's format.


_WORDS = 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint64
)
_LOW, _HALF, _TOP_BITS = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(27)


def may_contain(bloom_filter: bytes, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Which texts a Bloom filter, with its header, may contain."""
    hashes = np.array([xxh64_intdigest(text.encode()) for text in texts], np.uint64)
    blocks = np.frombuffer(bloom_filter[-_bytes_of_blocks(bloom_filter) :], "<u4").reshape(-1, _WORDS)
    words = blocks[(hashes >> _HALF) * np.uint64(len(blocks)) >> _HALF]
    bits = ((hashes & _LOW)[:, np.newaxis] * _SALTS & _LOW) >> _TOP_BITS
    is_set: NDArray[np.bool_] = (words >> bits & np.uint64(1)).all(axis=1)
    return is_set


def _bytes_of_blocks(bloom_filter: bytes) -> int:
    """The header's first field, a varint in zigzag encoding behind the field's type."""
    encoded = shift = 0
    for octet in bloom_filter[1:]:
        encoded |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    return encoded >> 1
