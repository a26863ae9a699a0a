"""Changes the rows of tables, and the ledger as if a night had written them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.night.commit import Changes
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import RUN_LEDGER, LedgerEntry, read_ledger
from schemas.tables import TABLES

Row = dict[str, Any]
Change = Callable[[list[Row]], list[Row]]


def copy_of(warehouse: Warehouse, folder: Path) -> Warehouse:
    shutil.copytree(warehouse.storage.root, folder)
    return Warehouse.at(str(folder))


def rewrite(warehouse: Warehouse, table: Table, change: Change) -> None:
    """Replaces all rows of a table with one broker, as if its night had written them."""
    warehouse = Warehouse.at(warehouse.storage.root)
    last = next(entry for entry in reversed(read_ledger(warehouse)) if entry.broker_name)
    rows = warehouse.rows(table, files=warehouse.files(table, last.broker_name)).to_pylist()
    changes = Changes(warehouse, last.broker_name, last.run)
    changes.replace_rows(table, [table.rows_batch(change(rows))])
    changes.commit()
    seal(warehouse)


def seal(warehouse: Warehouse) -> None:
    """Changes the ledger so that the present tables are those of the last run."""
    warehouse = Warehouse.at(warehouse.storage.root)
    states = {table.name: warehouse.log(table).state() for table in TABLES if warehouse.exists(table)}
    rewrite_ledger(warehouse, lambda entries: [*entries[:-1], replace(entries[-1], tables=states)])


def rewrite_ledger(warehouse: Warehouse, change: Callable[[list[LedgerEntry]], list[LedgerEntry]]) -> None:
    """Replaces the entries of the ledger."""
    warehouse = Warehouse.at(warehouse.storage.root)
    entries = change(read_ledger(warehouse))
    changes = Changes(warehouse, "", entries[-1].run)
    changes.replace_rows(RUN_LEDGER, [RUN_LEDGER.rows_batch([entry.table_row() for entry in entries])])
    changes.commit()


def one_row(values: Row, *, of: Callable[[Row], bool] = lambda row: True) -> Change:
    """Changes the oldest row for which a condition holds."""

    def change(rows: list[Row]) -> list[Row]:
        oldest = min((row for row in rows if of(row)), key=lambda row: str(row["run"]))
        return [row | values if row is oldest else row for row in rows]

    return change
