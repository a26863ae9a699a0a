"""Reads data files in full, so that Parquet's page checksums are verified."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.audits.scope import Scope
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage

DATA_FILES = pa.schema(
    [
        ("table_name", pa.string()),
        ("broker_name", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("damage", pa.string()),
    ]
)
FILES_IN_A_TASK = 8


@dataclass(frozen=True)
class _Check:
    table_name: str
    storage: Storage
    paths: tuple[str, ...]


def data_files(scope: Scope, session: Session) -> pa.Table:
    """A row of DATA_FILES for each data file in scope; ``damage`` is null if every page can be read."""
    tasks, rows, size = [], [], 0
    for table in scope.tables:
        files = scope.new_files(table)
        size += sum(file.size for file in files)
        for at in range(0, len(files), FILES_IN_A_TASK):
            task_files = files[at : at + FILES_IN_A_TASK]
            storage = scope.warehouse.log(table).storage
            tasks.append(_Check(table.name, storage, tuple(file.path for file in task_files)))
            rows += [(table.name, file.broker_name, file.path, file.size, file.rows) for file in task_files]
    damages = [damage for found in run_tasks(tasks, _damages, size, session) for damage in found]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return pa.table([*map(list, columns), damages], schema=DATA_FILES)


def _damages(check: _Check) -> list[str | None]:
    return [_damage(check.storage, path) for path in check.paths]


def _damage(storage: Storage, path: str) -> str | None:
    """What is wrong with a file; None if all of its pages can be read."""
    try:
        with storage.file_system.open_input_file(path) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            for group in range(file.metadata.num_row_groups):
                for column in range(file.metadata.num_columns):
                    file.reader.read_row_group(group, column_indices=[column], use_threads=False)
    except (OSError, pa.ArrowException) as error:
        return str(error).splitlines()[0]
    return None


TABLE_COLUMNS = pa.schema(
    [("table_name", pa.string()), ("column_name", pa.string()), ("declared", pa.string()), ("found", pa.string())]
)


def table_columns(scope: Scope) -> pa.Table:
    """A row of TABLE_COLUMNS for each column that a table declares or has; null: it lacks the column."""
    rows = []
    for table in scope.tables:
        declared, found = _types(table.schema), _types(scope.warehouse.log(table).schema)
        for name in dict.fromkeys([*declared, *found]):
            rows.append(
                {
                    "table_name": table.name,
                    "column_name": name,
                    "declared": declared.get(name),
                    "found": found.get(name),
                }
            )
    return pa.Table.from_pylist(rows, TABLE_COLUMNS)


def _types(schema: pa.Schema) -> dict[str, str]:
    # Arrow calls the values of a list item, and Parquet element.
    return {
        field.name: str(field.type).replace("<item: ", "<element: ") + ("" if field.nullable else " not null")
        for field in schema
    }
