"""Are the tables of a warehouse what its ledger says? What a run that died left is taken back."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.commitlog import COMMITLOG
from schemas.delta.delta_log import MAINTENANCE, TableDamaged, TableState, run_of
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.run_ledger import VERSION, LedgerEntry, read_ledger
from schemas.tables import DERIVED_TABLES, TABLES


def open_warehouse(warehouse: Warehouse) -> list[LedgerEntry]:
    """The ledger of a warehouse. Its readers see the tables as the last run left them.

    Raises UsageError if a table is not as the ledger says. The message says how to mend it.
    """
    entries = _entries(warehouse)
    if not entries:
        return []
    for table in TABLES:
        state = entries[-1].tables.get(table.name)
        if state is None:
            continue
        try:
            _check(warehouse, table, state, entries)
        except TableDamaged as error:
            raise UsageError(f"{warehouse.location}: {error}; {_remedy(table, entries)}") from None
    return entries


def undo_unfinished_run(warehouse: Warehouse, entries: Sequence[LedgerEntry], run: str) -> None:
    """Undoes what a run that is not in the ledger committed, as the run ``run``."""
    for table in TABLES:
        log = warehouse.log(table)
        log.pin(None)
        state = entries[-1].tables.get(table.name) if entries else None
        version = state.version if state is not None else 0
        if log.exists and _leftover(warehouse, table, version, entries):
            log.restore(version, run)


def _entries(warehouse: Warehouse) -> list[LedgerEntry]:
    try:
        entries = read_ledger(warehouse)
    except TableDamaged as error:
        raise UsageError(
            f"{warehouse.location}: {error}; without its ledger a warehouse cannot be continued: give another "
            "--warehouse and run nightly on the store again"
        ) from None
    except Exception as error:
        raise UsageError(f"{warehouse.location}: run_ledger cannot be read: {str(error).splitlines()[0]}") from None
    if not entries and warehouse.exists(COMMITLOG) and warehouse.log(COMMITLOG).files:
        raise UsageError(
            f"{warehouse.location} has a commitlog, but no run_ledger: it is of an older mqsieve, or its ledger was "
            "deleted. Give another --warehouse and run nightly on the store again"
        )
    if entries and entries[-1].layout > VERSION:
        raise UsageError(f"{warehouse.location} was written by a newer mqsieve (layout {entries[-1].layout}): use that")
    return entries


def _check(warehouse: Warehouse, table: Table, state: TableState, entries: Sequence[LedgerEntry]) -> None:
    log = warehouse.log(table)
    if not log.exists:
        raise TableDamaged(f"{table.name} is missing")
    if log.version < state.version:
        raise TableDamaged(
            f"{table.name} is at version {log.version}, and the last run left it at {state.version}: it was "
            "restored or replaced, or lost a commit"
        )
    if log.version == state.version:
        if log.state().digest != state.digest:
            raise TableDamaged(f"{table.name} has other files than the last run left: its last commit was lost")
    elif _leftover(warehouse, table, state.version, entries):
        log.pin(state.version)
    elif log.state().rows != state.rows:
        raise TableDamaged(f"{table.name} has {log.state().rows:,} rows instead of {state.rows:,}")
    if missing := log.missing_files():
        raise TableDamaged(f"{table.name} lacks {len(missing)} of its data files, such as {missing[0].path}")


def _leftover(warehouse: Warehouse, table: Table, version: int, entries: Sequence[LedgerEntry]) -> bool:
    """Whether runs that are not in the ledger committed after ``version``. Raises TableDamaged where others did."""
    known = {entry.run for entry in entries}
    leftover = False
    for operation in warehouse.log(table).operations_since(version):
        if (run := run_of(operation)) is not None:
            leftover |= run not in known
        elif operation["operation"] not in MAINTENANCE:
            raise TableDamaged(
                f"{table.name} was changed by another program ({operation['operation']}, "
                f"version {operation['version']})"
            )
    return leftover


def _remedy(table: Table, entries: Sequence[LedgerEntry]) -> str:
    if table in DERIVED_TABLES:
        return "add --redo-from 0 to nightly: it makes the table anew from commitlog"
    version = entries[-1].tables[table.name].version
    return (
        f"restore it to version {version} (RESTORE TABLE delta.`…` TO VERSION AS OF {version}) or from a copy; else "
        "give another --warehouse and run nightly on the store again"
    )
