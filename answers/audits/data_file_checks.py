"""The data files of an audit with the damage of their pages, and the columns of the tables.

Page checksums and statistics are verified as parallel tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from answers.audits.scope import Scope
from filtering.frozen import frozen
from schemas.arrow_batches import table_of
from schemas.commitlog import COMMITLOG
from schemas.delta.delta_log import DataFileDamaged, verify_file
from schemas.delta.table import StoredFile, Table
from schemas.delta.warehouse import Warehouse
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE

DATA_FILES = pa.schema(
    [
        ("table_name", pa.string()),
        ("broker_name", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("damage", pa.string()),
        ("remedy", pa.string()),
    ]
)
TABLE_COLUMNS = pa.schema(
    [("table_name", pa.string()), ("column_name", pa.string()), ("declared", pa.string()), ("found", pa.string())]
)
FILES_IN_A_TASK = 8


def data_files(scope: Scope, read_whole: Collection[str], session: Session) -> pa.Table:
    """A row of DATA_FILES for each data file that audits read; ``damage`` is null if every page can be read.

    ``read_whole``: the names of tables of which audits read the rows of all nights.
    """
    files = {table: _files_read(scope, table, read_whole) for table in scope.tables}
    damaged = damaged_files(scope.warehouse, files, session)
    rows = []
    for table, table_files in files.items():
        for file in table_files:
            error = damaged.get(file.path)
            damage, remedy = (error.reason, error.remedy) if error else (None, None)
            rows.append((table.name, file.broker_name, file.path, file.size, file.rows, damage, remedy))
    return table_of(DATA_FILES, rows)


def _files_read(scope: Scope, table: Table, read_whole: Collection[str]) -> list[StoredFile]:
    if table.name in read_whole:
        return scope.warehouse.log(table).files
    files = {file.path: file for file in scope.new_files(table)}
    if table in (COMMITLOG, CONSUMEQUEUE):
        files |= {file.path: file for file in scope.files_of_range(table)}
    return list(files.values())


@frozen
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
    return {path: error for damage in run_tasks(tasks, _damaged, size, session) for path, error in damage.items()}


def _damaged(check: _Check) -> dict[str, DataFileDamaged]:
    damage = {}
    for file in check.files:
        try:
            verify_file(check.table, check.storage, file)
        except DataFileDamaged as error:
            damage[file.path] = error
        except OSError as error:
            damage[file.path] = DataFileDamaged(check.storage.root, file.path, str(error).splitlines()[0])
    return damage


def table_columns(scope: Scope) -> pa.Table:
    """A row of TABLE_COLUMNS for each column that a table declares or has; null: it lacks the column."""
    rows = []
    for table in scope.tables:
        declared, stored = _types(table.schema), _types(scope.warehouse.log(table).schema)
        names = dict.fromkeys([*declared, *stored])
        rows += [(table.name, name, declared.get(name), stored.get(name)) for name in names]
    return table_of(TABLE_COLUMNS, rows)


def _types(schema: pa.Schema) -> dict[str, str]:
    # Arrow calls the values of a list item, and Parquet element.
    return {
        field.name: str(field.type).replace("<item: ", "<element: ") + ("" if field.nullable else " not null")
        for field in schema
    }
