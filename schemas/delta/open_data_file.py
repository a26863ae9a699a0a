"""Opens Parquet files of tables for reading, and verifies the checksums of the pages that are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.delta.data_files import StoredFile, statistics
from schemas.delta.delta_log import TableDamaged
from schemas.delta.table import Table
from schemas.shell_command import PROGRAM, option
from schemas.storage import Storage


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

    def __init__(self, table: Table, file: pq.ParquetFile) -> None:
        self.row_groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        self._file = file
        self._stored = set(file.schema_arrow.names)
        self._types = {field.name: field.type for field in table.file_schema}

    def read(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns of a row group; None: all of the table's files. Columns that the file leaves out are null."""
        names = list(self._types if columns is None else columns)
        rows = self._file.read_row_group(group, [name for name in names if name in self._stored], use_threads=False)
        for name in names:
            if name not in self._stored:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, self._types[name]))
        return rows.select(names)


@contextmanager
def open_data_file(
    table: Table, storage: Storage, path: str, read_dictionary: Sequence[str] = ()
) -> Iterator[OpenDataFile]:
    """Opens a file of a table. ``read_dictionary``: texts to read as dictionaries where they are stored so.

    Raises DataFileDamaged if the file is not what was written.
    """
    with _open(storage, path, read_dictionary) as file:
        yield OpenDataFile(table, file)


@contextmanager
def _open(storage: Storage, path: str, read_dictionary: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    try:
        with storage.file_system.open_input_file(path) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            dictionaries = [name for name in read_dictionary if _may_be_dictionary(file.metadata, name)]
            if dictionaries:
                file = pq.ParquetFile(
                    source, metadata=file.metadata, read_dictionary=dictionaries, page_checksum_verification=True
                )
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataFileDamaged(storage.root, path, str(error).strip().splitlines()[0]) from None


def _may_be_dictionary(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether PyArrow can read a column as a dictionary: it has values, and no row group has them delta-encoded."""
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if name not in paths:
        return False
    groups = (metadata.row_group(group).column(paths.index(name)) for group in range(metadata.num_row_groups))
    return not any(encoding.startswith("DELTA_") for group in groups for encoding in group.encodings)


def verify_file(table: Table, storage: Storage, stored: StoredFile) -> None:
    """Reads a file of a table in full, column by column, and compares its rows and statistics with the Delta log.

    Raises DataFileDamaged.
    """
    columns = table.known_statistics
    with _open(storage, stored.path, table.dictionary_texts) as file:
        found = statistics(file.metadata)
        least, greatest = (
            [values.get(name) for name in columns] for values in (found["minValues"], found["maxValues"])
        )
        known = stored.rows, [stored.least[name] for name in columns], [stored.greatest[name] for name in columns]
        if known != (found["numRecords"], least, greatest):
            raise DataFileDamaged(storage.root, stored.path, "the Delta log has other statistics of it")
        for group in range(file.metadata.num_row_groups):
            for column in range(file.metadata.num_columns):
                file.reader.read_row_group(group, column_indices=[column], use_threads=False)
