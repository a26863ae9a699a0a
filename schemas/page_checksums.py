"""Verifies the page checksums of data files, as parallel tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.delta.open_data_file import DataFileDamaged, verify_pages
from schemas.delta.stored_files import StoredFile
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage

FILES_IN_A_TASK = 8


@dataclass(frozen=True)
class _Check:
    storage: Storage
    paths: tuple[str, ...]


def damaged_files(
    warehouse: Warehouse, files: Mapping[Table, Sequence[StoredFile]], session: Session
) -> dict[str, DataFileDamaged]:
    """What is wrong with those of some data files that are not what was written, by path."""
    tasks = [
        _Check(warehouse.log(table).storage, tuple(file.path for file in table_files[at : at + FILES_IN_A_TASK]))
        for table, table_files in files.items()
        for at in range(0, len(table_files), FILES_IN_A_TASK)
    ]
    size = sum(file.size for table_files in files.values() for file in table_files)
    return {path: error for found in run_tasks(tasks, _damaged, size, session) for path, error in found.items()}


def _damaged(check: _Check) -> dict[str, DataFileDamaged]:
    found = {}
    for path in check.paths:
        try:
            verify_pages(check.storage, path)
        except DataFileDamaged as error:
            found[path] = error
        except OSError as error:
            found[path] = DataFileDamaged(check.storage.root, path, str(error).splitlines()[0])
    return found
