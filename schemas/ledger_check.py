"""Checks the tables of a warehouse against its ledger, and undoes the commits of unfinished runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from filtering.counted import counted
from filtering.frozen import frozen
from schemas.delta.delta_log import DataFileDamaged, TableDamaged, TableState, leaves_rows, run_of
from schemas.delta.table import LAYOUT, UPGRADED_LAYOUT, Table
from schemas.delta.table_rows import Condition, Where, without
from schemas.delta.warehouse import LOCK, Warehouse
from schemas.errors import UsageError, WarehouseUnusable
from schemas.run_ledger import MAINTAIN, REPLAY, RUN_LEDGER, WITHDRAWN, LedgerEntry, read_ledger, runs_of
from schemas.tables import REBUILT_TABLES, TABLES

# Checks whether a folder holds a warehouse, or may become one.


_PERCENT_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
NO_CONTENT = frozenset({LOCK, "lost+found"})
"""Names in a folder that may become a warehouse: the lock of a run that ended early, and a new disk's own folder."""


def check_folder(warehouse: Warehouse) -> None:
    """Raises WarehouseUnusable if the folder has content, but not that of a warehouse, UsageError if it is unreadable.

    A night begins with the folder of run_ledger, so an interrupted first night has it.
    """
    if warehouse.catalog is not None:
        return
    if escape := _PERCENT_ESCAPE.search(warehouse.storage.root):
        raise WarehouseUnusable(
            f"{warehouse.location} contains {escape[0]}, which delta-rs takes for another character: give a folder "
            "without it"
        )
    warehouse.storage.check_access()
    names = warehouse.storage.names()
    if names <= NO_CONTENT or RUN_LEDGER.name in names or any(_has_log(warehouse, table) for table in TABLES):
        return
    shown = min(names - NO_CONTENT)
    raise WarehouseUnusable(
        f"{warehouse.location} is not empty, and no mqsieve warehouse (it has {shown}): give another folder"
    )


def no_nights(warehouse: Warehouse) -> UsageError:
    """The error for a warehouse without a night: a missing or empty folder, or another program's folder."""
    create = f"{warehouse.command('nightly')} --store STORE"
    if warehouse.catalog is None:
        if warehouse.storage.is_local and Path(warehouse.storage.root).is_file():
            return UsageError(f"{warehouse.location} is a file: check --warehouse")
        if not warehouse.storage.is_folder():
            return UsageError(f"{warehouse.location} does not exist: check --warehouse, or create it with {create}")
        names = warehouse.storage.names()
        if not names <= NO_CONTENT and RUN_LEDGER.name not in names:
            return UsageError(
                f"{warehouse.location} is no mqsieve warehouse: it has no run_ledger, but {min(names - NO_CONTENT)}; "
                "check --warehouse"
            )
    return UsageError(f"{warehouse.location} has no night yet: run {create} first")


def _has_log(warehouse: Warehouse, table: Table) -> bool:
    return warehouse.storage.child(f"{table.name}/_delta_log").is_folder()


START_AGAIN = "give another --warehouse and run nightly on the store again"
REPLAY_AGAIN = "run replay again, into another folder"


def open_warehouse(warehouse: Warehouse) -> list[LedgerEntry]:
    """The runs of a warehouse's ledger. Its readers see the tables as the last run left them.

    Raises UsageError if a table is not as the ledger says. The message says how to mend it.
    """
    entries = read_runs(warehouse)
    for table, damage in damages(warehouse, entries):
        raise damaged(warehouse, table, damage, entries)
    return entries


def upgrade(warehouse: Warehouse) -> None:
    """Brings tables of the layout before up to date. The ledger is last, so a killed run leaves what the next does.

    A table that cannot be read, and a replay, are left to :func:`open_warehouse`, which says what to do. Raises
    UsageError if a table is of another layout.
    """
    with suppress(TableDamaged):
        if _is_older_replay(warehouse):
            return
    for table in (*TABLES, RUN_LEDGER):
        with suppress(TableDamaged):
            if warehouse.exists(table):
                _refuse_other_layout(warehouse, warehouse.log(table).layout)
                warehouse.log(table).upgrade()


def open_runs(warehouse: Warehouse) -> list[LedgerEntry]:
    """As :func:`open_warehouse`, but raises UsageError if there was no run yet, too."""
    entries = open_warehouse(warehouse)
    if not entries:
        raise no_nights(warehouse)
    return entries


def damaged(warehouse: Warehouse, table: Table, damage: str, entries: Sequence[LedgerEntry]) -> UsageError:
    """The error for a table that is not as the ledger says."""
    return UsageError(f"{warehouse.location}: {damage}; {_remedy(warehouse, table, entries)}")


def damages(warehouse: Warehouse, entries: Sequence[LedgerEntry]) -> Iterator[tuple[Table, str]]:
    """The tables that are not as the ledger says, and what is wrong with them. Raises UsageError on other layouts."""
    for table in TABLES:
        state = entries[-1].tables.get(table.name) if entries else None
        if state is None:
            continue
        try:
            _check(warehouse, table, state, entries)
        except TableDamaged as error:
            yield table, str(error)


def undo_unfinished_run(
    warehouse: Warehouse, entries: Sequence[LedgerEntry], run: str, tables: Iterable[Table] = TABLES
) -> None:
    """Undoes the commits of runs that are not in the ledger. ``run`` is the name of the run that undoes them."""
    for table in tables:
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


def read_runs(warehouse: Warehouse) -> list[LedgerEntry]:
    """The runs of a warehouse's ledger. The tables are not checked.

    Raises UsageError if the ledger is missing, damaged, or of another layout.
    """
    try:
        _check_layout(warehouse, RUN_LEDGER)
        _check_files(warehouse, RUN_LEDGER)
        entries = read_ledger(warehouse)
    except TableDamaged as error:
        damage = error.damage if isinstance(error, DataFileDamaged) else error
        raise UsageError(
            f"{warehouse.location}: {damage}; without its ledger a warehouse cannot be continued: put it back from a "
            f"copy, or {START_AGAIN}"
        ) from None
    except (UsageError, PermissionError):
        raise
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{warehouse.location}: run_ledger cannot be read ({reason}): it is of an older mqsieve, or damaged; "
            f"{START_AGAIN}"
        ) from None
    others = () if warehouse.exists(RUN_LEDGER) else TABLES
    if table := next((table for table in others if warehouse.log(table).files), None):
        raise UsageError(
            f"{warehouse.location} has {table.name}, but no run_ledger: it is of an older mqsieve, or its ledger was "
            f"deleted: put it back from a copy, or {START_AGAIN}"
        )
    if entries:
        _refuse_other_layout(warehouse, entries[-1].layout)
    return runs_of(entries)


def _check_layout(warehouse: Warehouse, table: Table) -> None:
    if not warehouse.exists(table):
        return
    layout = warehouse.log(table).layout
    _refuse_other_layout(warehouse, layout)
    if layout < LAYOUT:
        remedy = REPLAY_AGAIN if _is_older_replay(warehouse) else "the next nightly brings it up to date"
        raise UsageError(f"{warehouse.location} was written by an older mqsieve (layout {layout}): {remedy}")


def _is_older_replay(warehouse: Warehouse) -> bool:
    ledger = warehouse.log(RUN_LEDGER)
    is_older = ledger.exists and UPGRADED_LAYOUT <= ledger.layout < LAYOUT
    return is_older and any(entry.job == REPLAY for entry in read_ledger(warehouse))


def _refuse_other_layout(warehouse: Warehouse, layout: int) -> None:
    if layout > LAYOUT:
        raise UsageError(f"{warehouse.location} was written by a newer mqsieve (layout {layout}): use that")
    if layout < UPGRADED_LAYOUT:
        raise UsageError(f"{warehouse.location} was written by an older mqsieve (layout {layout}): {START_AGAIN}")


def _check(warehouse: Warehouse, table: Table, state: TableState, entries: Sequence[LedgerEntry]) -> None:
    log = warehouse.log(table)
    if not log.exists:
        raise TableDamaged(f"{table.name} is missing")
    _check_layout(warehouse, table)
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
        raise TableDamaged(f"{table.name} has {counted(log.state().rows, 'row')} instead of {state.rows:,}")
    _check_files(warehouse, table)


def _check_files(warehouse: Warehouse, table: Table) -> None:
    if missing := warehouse.log(table).missing_files():
        raise TableDamaged(f"{table.name} lacks {len(missing)} of its data files, such as {missing[0].path}")


def _leftover(warehouse: Warehouse, table: Table, version: int, entries: Sequence[LedgerEntry]) -> bool:
    """Whether runs outside the ledger committed after ``version``. Raises TableDamaged if other programs did."""
    known = {run for entry in entries for run in (entry.run, entry.maintained)}
    leftover = False
    for operation in warehouse.log(table).operations_since(version):
        if (run := run_of(operation)) is not None:
            leftover |= run not in known
        elif not leaves_rows(operation):
            raise TableDamaged(
                f"{table.name} was changed by another program ({operation['operation']}, "
                f"version {operation['version']})"
            )
    return leftover


def _remedy(warehouse: Warehouse, table: Table, entries: Sequence[LedgerEntry]) -> str:
    if entries[-1].job == REPLAY:
        return f"a replay is not repaired: {REPLAY_AGAIN}"
    if table in REBUILT_TABLES:
        return f"{warehouse.command('maintain --rebuild')} rebuilds it from commitlog and subscription_events"
    version = entries[-1].tables[table.name].version
    return (
        f"no other table has its content: restore it to version {version} (RESTORE TABLE delta.`…` TO VERSION AS OF "
        f"{version}) or from a copy; else {START_AGAIN}"
    )


# The rows of earlier runs that a run removed, made again or moved, as its ledger entry records them.
#
# Audits compare the rows of earlier nights with those of the last audit, and leave out those that a later run
# withdrew.


@frozen
class Withdrawal:
    """Rows that one broker has in a table: those for which all conditions of ``where`` hold."""

    table_name: str
    where: Where

    def rest(self, rows: pa.Table) -> pa.Table:
        """The rows that are not withdrawn."""
        return without(rows, self.where) if self.where else rows.slice(0, 0)


def withdrawals_text(withdrawals: Iterable[Withdrawal]) -> str:
    """Withdrawals as JSON, each once."""
    texts = (json.dumps([withdrawal.table_name, *map(_condition_json, withdrawal.where)]) for withdrawal in withdrawals)
    return f"[{', '.join(dict.fromkeys(texts))}]"


def withdrawals_since(
    entries: Sequence[LedgerEntry], table: Table, version: int, broker_name: str | None
) -> list[Withdrawal]:
    """The withdrawals from a table after one of its versions. ``entries``: all of the ledger, with maintenance.

    ``broker_name``: of the rows; None in a table whose rows are of no broker.
    """
    withdrawals = []
    for entry in entries:
        state = entry.tables.get(table.name)
        if state is None or state.version <= version:
            continue
        if entry.job == MAINTAIN:
            withdrawals += _parse(entry.inputs.get(f"{broker_name}/{WITHDRAWN}", "[]"), table)
        elif entry.broker_name == broker_name:
            withdrawals += _parse(entry.inputs.get(WITHDRAWN, "[]"), table)
    return withdrawals


def _parse(text: str, table: Table) -> list[Withdrawal]:
    return [
        Withdrawal(name, [Condition(**condition) for condition in conditions])
        for name, *conditions in json.loads(text)
        if name == table.name
    ]


def _condition_json(condition: Condition) -> dict[str, object]:
    values = None if condition.values is None else sorted(condition.values)
    fields = {"column": condition.column, "low": condition.low, "below": condition.below, "values": values}
    return {name: value for name, value in fields.items() if value is not None}
