"""Are the tables of a warehouse what its ledger says? What a run that died left is taken back."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.commitlog import COMMITLOG
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.delta_log import MAINTENANCE, TableDamaged, TableState, run_of
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.run_ledger import RUN_LEDGER, VERSION, LedgerEntry, read_ledger
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.tables import DERIVED_TABLES, TABLES

REMADE_TABLES = (*(table for table in DERIVED_TABLES if table is not CONSUMER_OFFSETS), SUBSCRIPTIONS)
"""Tables that a redo of all nights writes again. It reads the committed offsets of then from consumer_offsets."""
START_AGAIN = "give another --warehouse and run nightly on the store again"


def open_warehouse(warehouse: Warehouse, redo_all: bool = False) -> list[LedgerEntry]:
    """The ledger of a warehouse. Its readers see the tables as the last run left them.

    Raises UsageError if a table is not as the ledger says. The message says how to mend it. ``redo_all``: all
    nights will run again; a damaged table that they make anew is removed instead.
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
            is_remade = table in REMADE_TABLES and len({entry.broker_name for entry in entries}) == 1
            if not (redo_all and is_remade):
                raise UsageError(f"{warehouse.location}: {error}; {_remedy(state, is_remade)}") from None
            warehouse.log(table).remove()
    return entries


def undo_unfinished_run(warehouse: Warehouse, entries: Sequence[LedgerEntry], run: str) -> None:
    """Undoes what a run that is not in the ledger committed, as the run ``run``."""
    for table in TABLES:
        log = warehouse.log(table)
        log.pin(None)
        if not log.exists:
            continue
        state = entries[-1].tables.get(table.name) if entries else None
        if state is None:
            log.create()
        elif log.state().digest == state.digest:
            continue
        version = log.empty_version if state is None else state.version
        if _leftover(warehouse, table, version, entries):
            log.restore(version, run)


def _entries(warehouse: Warehouse) -> list[LedgerEntry]:
    try:
        if missing := warehouse.log(RUN_LEDGER).missing_files():
            raise TableDamaged(f"run_ledger lacks {len(missing)} of its data files, such as {missing[0].path}")
        entries = read_ledger(warehouse)
    except TableDamaged as error:
        raise UsageError(
            f"{warehouse.location}: {error}; without its ledger a warehouse cannot be continued: put it back from a "
            f"copy, or {START_AGAIN}"
        ) from None
    if not warehouse.exists(RUN_LEDGER) and warehouse.exists(COMMITLOG) and warehouse.log(COMMITLOG).files:
        raise UsageError(
            f"{warehouse.location} has a commitlog, but no run_ledger: it is of an older mqsieve, or its ledger was "
            f"deleted: put it back from a copy, or {START_AGAIN}"
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
    if log.state().digest != state.digest and _leftover(warehouse, table, state.version, entries):
        log.pin(state.version)
    if log.version == state.version:
        if log.state().digest != state.digest:
            raise TableDamaged(f"{table.name} has other files than the last run left: its last commit was lost")
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


def _remedy(state: TableState, is_remade: bool) -> str:
    if is_remade:
        return "add --redo-from 0 to nightly: it makes the table anew from commitlog"
    return (
        f"where another program changed it, restore version {state.version} (RESTORE TABLE), else put the table back "
        f"from a copy; without one {START_AGAIN}"
    )
