"""Verifies the page checksums and the statistics of data files, as parallel tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.delta.open_data_file import DataFileDamaged, verify_file
from schemas.delta.stored_files import StoredFile
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage

FILES_IN_A_TASK = 8


@dataclass(frozen=True)
class _Check:
    table: Table
    storage: Storage
    files: tuple[StoredFile, ...]


def damaged_files(
    warehouse: Warehouse, files: Mapping[Table, Sequence[StoredFile]], session: Session
) -> dict[str, DataFileDamaged]:
    """What is wrong with those of some data files that are not what was written, by path."""
    tasks = [
        _Check(table, warehouse.log(table).storage, tuple(table_files[at : at + FILES_IN_A_TASK]))
        for table, table_files in files.items()
        for at in range(0, len(table_files), FILES_IN_A_TASK)
    ]
    size = sum(file.size for table_files in files.values() for file in table_files)
    return {path: error for found in run_tasks(tasks, _damaged, size, session) for path, error in found.items()}


def _damaged(check: _Check) -> dict[str, DataFileDamaged]:
    found = {}
    for file in check.files:
        try:
            verify_file(check.table, check.storage, file)
        except DataFileDamaged as error:
            found[file.path] = error
        except OSError as error:
            found[file.path] = DataFileDamaged(check.storage.root, file.path, str(error).splitlines()[0])
    return found
