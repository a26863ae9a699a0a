"""Names runs, and writes their ledger entries."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from jobs.night.commit.changes import Changes
from jobs.night.commit.compaction import compact
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import RUN_LEDGER, LedgerEntry
from schemas.tables import TABLES


def next_run(entries: Iterable[LedgerEntry]) -> str:
    """The name of a new run: its start time, UTC, and later than earlier runs even if the clock was set back."""
    now = time.time_ns() // 1_000_000
    last = max((entry.maintained or entry.run for entry in entries), default="")
    if last >= _iso_time(now):
        now = round(datetime.fromisoformat(last).timestamp() * 1000) + 1
    return _iso_time(now)


def commit(changes: Changes, entry: LedgerEntry) -> LedgerEntry:
    """Commits each table, and then the ledger. Returns the entry with the rows and the states of the tables."""
    changes.commit()
    rows = {table.name: added for table in TABLES if (added := changes.added_rows(table))}
    return record(changes.warehouse, replace(entry, rows=rows))


def record(warehouse: Warehouse, entry: LedgerEntry) -> LedgerEntry:
    """Writes an entry with the present states of all tables, which the next run expects. Returns it."""
    tables = {table.name: warehouse.log(table).state() for table in TABLES if warehouse.exists(table)}
    complete = replace(entry, tables=tables)
    ledger = Changes(warehouse, entry.broker_name, entry.run)
    ledger.add_rows(RUN_LEDGER, [RUN_LEDGER.rows_batch([complete.table_row()])])
    compact(RUN_LEDGER, ledger)
    ledger.commit()
    return complete


def _iso_time(milliseconds: int) -> str:
    instant = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
