"""Writes the ledger entry of maintenance."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.night.changes import Changes
from jobs.night.compaction import compact
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import MAINTAIN, RUN_LEDGER, LedgerEntry
from schemas.tables import TABLES


def record(warehouse: Warehouse, run: str, inputs: Mapping[str, str]) -> None:
    """Records the present state of all tables, which the next run expects. ``inputs``: facts for later runs."""
    tables = {table.name: warehouse.log(table).state() for table in TABLES if warehouse.exists(table)}
    ledger = Changes(warehouse, "", run)
    entry = LedgerEntry(run, "", MAINTAIN, inputs=inputs, tables=tables)
    ledger.add_rows(RUN_LEDGER, [RUN_LEDGER.rows_batch([entry.table_row()])])
    compact(RUN_LEDGER, ledger)
    ledger.commit()
