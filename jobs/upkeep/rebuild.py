"""Rebuilds damaged or missing tables from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.night.commit.changes import Changes
from jobs.night.past.past_nights import past_nights
from jobs.night.past.state import BrokerState
from jobs.night.run import Run
from jobs.upkeep.moved_rows import moved_rows
from schemas.audits.data_file_checks import damaged_files
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table import Table
from schemas.delta.table_rows import within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import START_AGAIN, damaged, damages, read_runs, undo_unfinished_run
from schemas.ledger_inputs import WITHDRAWN
from schemas.run_ledger import REPLAY, LedgerEntry, by_broker, nights_of, unreplaced_runs
from schemas.spark_tasks import Session
from schemas.subscriptions import SUBSCRIPTIONS, read_events, subscription_rows
from schemas.tables import DERIVED_TABLES, REBUILT_TABLES, TABLES
from schemas.withdrawals import withdrawals_text


@dataclass(frozen=True)
class DamagedTables:
    """The damaged ``tables`` of a warehouse: a message for each name. ``entries``: the runs in the ledger."""

    entries: Sequence[LedgerEntry]
    tables: dict[str, str]


def find_damage(warehouse: Warehouse, session: Session) -> DamagedTables:
    """Reads all files, and finds damaged tables. Raises UsageError if one of them cannot be rebuilt."""
    entries = read_runs(warehouse)
    found = dict(damages(warehouse, entries))
    readable = {table: warehouse.log(table).files for table in TABLES if table not in found and warehouse.exists(table)}
    errors = damaged_files(warehouse, readable, session)
    for table, files in readable.items():
        if broken := [errors[file.path].damage for file in files if file.path in errors]:
            more = f" (and {len(broken) - 1} more of its files)" if len(broken) > 1 else ""
            found[table] = broken[0] + more
    for table, damage in found.items():
        if table not in REBUILT_TABLES or entries[-1].job == REPLAY:
            raise damaged(warehouse, table, damage, entries)
    return DamagedTables(entries, {table.name: damage for table, damage in found.items()})


def rebuild(run: Run, damage: DamagedTables, name: str) -> dict[str, str]:
    """Rebuilds all derived tables as the run ``name``: repeats every night of every broker with its own end.

    Returns inputs for the ledger's entry: the rows that have other runs now. Raises UsageError if the nights cannot be
    repeated from the tables alone.
    """
    nights = {broker_name: unreplaced_runs(runs) for broker_name, runs in by_broker(damage.entries).items()}
    for entries in nights.values():
        for entry in entries:
            _check_repeatable(entry, entries[-1].messages_from)
    broken = [table for table in TABLES if table.name in damage.tables]
    undo_unfinished_run(run.warehouse, damage.entries, name, [table for table in TABLES if table not in broken])
    for table in broken:
        run.warehouse.log(table).drop()
    inputs = {}
    for broker_name, entries in nights.items():
        changes = Changes(run.warehouse, broker_name, name)
        inputs[f"{broker_name}/{WITHDRAWN}"] = withdrawals_text(moved_rows(entries, changes))
        _rebuild_broker(run, entries, broken, changes)
    return inputs


def _check_repeatable(entry: LedgerEntry, messages_from: int) -> None:
    reasons = {
        "had filter hooks": bool(entry.hooks),
        "read messages that were removed since": (entry.log_start or 0) < messages_from,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(f"the night {entry.run} {reason} and cannot be repeated from the tables: {START_AGAIN}")


def _rebuild_broker(run: Run, entries: Sequence[LedgerEntry], broken: Sequence[Table], changes: Changes) -> None:
    events = read_events(run.warehouse, entries[0].broker_name)
    delivered = nights_of(entries)
    nights = list(past_nights(delivered, range(len(delivered)), changes))
    prepared = BrokerState(entries).first_prepared
    for table in DERIVED_TABLES:
        if table is CONSUMER_OFFSETS and prepared is not None:
            # The committed offsets of a snapshot that only ingest has read are still needed.
            changes.delete_rows(table, [within("run", below=prepared)])
        else:
            changes.replace_rows(table, [])
    state = BrokerState((), events=events)
    for night in nights:
        state = run.redo_night(night.entry.broker, night, state, events, changes)
    if SUBSCRIPTIONS in broken:
        history = BrokerState(entries).history(events, entries[-1].broker, run.expressions)
        changes.replace_rows(SUBSCRIPTIONS, [subscription_rows(history)])
    changes.create_missing(table for table in broken if table.name in entries[-1].tables)
    changes.commit()
