"""Opens Parquet files of tables for reading, and verifies the checksums of the pages that are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.delta.delta_log import TableDamaged
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


@contextmanager
def open_data_file(storage: Storage, path: str, read_dictionary: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Opens a file of a table. ``read_dictionary``: columns to read as dictionaries.

    Raises DataFileDamaged if the file is not what was written.
    """
    try:
        with storage.file_system.open_input_file(path) as source:
            yield pq.ParquetFile(source, read_dictionary=list(read_dictionary), page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataFileDamaged(storage.root, path, str(error).strip().splitlines()[0]) from None


def verify_pages(storage: Storage, path: str) -> None:
    """Reads a file of a table in full, column by column. Raises DataFileDamaged."""
    with open_data_file(storage, path) as file:
        for group in range(file.metadata.num_row_groups):
            for column in range(file.metadata.num_columns):
                file.reader.read_row_group(group, column_indices=[column], use_threads=False)
