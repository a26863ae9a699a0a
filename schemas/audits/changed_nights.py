"""Finds audited nights whose rows have changed since.

Rows can only change if files left a table since the audit. The rows of these files are compared with the rows of the
files that were added. A table to which nights only added files costs nothing. Rows that a later run withdrew are left
out: its ledger entry says which they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError
from numpy.typing import NDArray

from schemas.arrow_batches import table_of
from schemas.audits.scope import Scope
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_pairs import pairs_of
from schemas.delta.data_files import StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import within
from schemas.quarantine import QUARANTINE
from schemas.tables import APPENDED_TABLES, TRIMMED_TABLES
from schemas.withdrawals import Withdrawal, withdrawals_since

CHANGED_NIGHTS = pa.schema(
    [
        ("table_name", pa.string()),
        ("broker_name", pa.string()),
        ("run", pa.string()),
        ("rows_before", pa.int64()),
        ("rows_now", pa.int64()),
        ("reason", pa.string()),
    ]
)
NOT_COMPARED = frozenset({"body", "body_crc"})
"""Bodies may be dropped, and body_crc is stored only if the body is not."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
AFTER = "\0"
"""Appended to a text, gives the next greater text."""
Totals = dict[tuple[str | None, str], tuple[int, int]]
"""The number of rows and the sum of their hashes, by broker and run."""


def changed_nights(scope: Scope) -> pa.Table:
    """Rows of CHANGED_NIGHTS: the nights whose rows in a table differ from those at the last audit that passed.

    Rows that a run since then has withdrawn are not compared.
    """
    rows: list[tuple[object, ...]] = []
    for table in APPENDED_TABLES:
        if scope.last_audit is None or table.name not in scope.last_audit.versions:
            continue
        try:
            before, now = _before_and_now(scope, table, scope.last_audit.run, scope.last_audit.versions[table.name])
        except (DeltaError, OSError) as error:
            reason = f"cannot be compared: {str(error).splitlines()[0]}"
            rows.append((table.name, None, scope.last_audit.run, None, None, reason))
            continue
        for broker_name, run in sorted(before.keys() | now.keys(), key=str):
            old, new = (totals.get((broker_name, run), (0, 0)) for totals in (before, now))
            if old != new and (new[0] or not _was_removed(scope, table, broker_name, run)):
                reason = "other values" if old[0] == new[0] else "other rows"
                rows.append((table.name, broker_name, run, old[0], new[0], reason))
    return table_of(CHANGED_NIGHTS, rows)


def _was_removed(scope: Scope, table: Table, broker_name: str | None, run: str) -> bool:
    """Whether maintenance removed the rows of a night."""
    is_removed = table in (*TRIMMED_TABLES, QUARANTINE)
    return is_removed and broker_name is not None and run < scope.first_kept(broker_name)


def _before_and_now(scope: Scope, table: Table, last_run: str, version: int) -> tuple[Totals, Totals]:
    log = scope.warehouse.log(table)
    if version >= log.version:
        return {}, {}
    before, now = log.files_at(version), log.files
    kept = {file.path for file in before} & {file.path for file in now}
    removed = [file for file in before if file.path not in kept]
    added = [file for file in now if file.path not in kept and file.least.get("run", "") <= last_run]
    if not removed and not added:
        return {}, {}
    withdrawn = {
        name: withdrawals_since(scope.ledger, table, version, name)
        for name in {file.broker_name for file in (*removed, *added)}
    }
    return _totals(scope, table, removed, last_run, withdrawn), _totals(scope, table, added, last_run, withdrawn)


def _totals(
    scope: Scope,
    table: Table,
    files: Sequence[StoredFile],
    last_run: str,
    withdrawn: Mapping[str | None, Sequence[Withdrawal]],
) -> Totals:
    totals: defaultdict[tuple[str | None, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    names = [name for name in table.file_schema.names if name not in NOT_COMPARED]
    for file in files:
        stored = scope.warehouse.rows(table, names, [within("run", below=last_run + AFTER)], [file])
        # The same deliveries may be in other blocks.
        parts = (pa.Table.from_batches([batch]) for batch in pairs_of(stored)) if table is DELIVERY_BLOCKS else [stored]
        for rows in parts:
            for withdrawal in withdrawn[file.broker_name]:
                rows = withdrawal.rest(rows)
            for run, hashes in _by_run(rows):
                count, total = totals[file.broker_name, run]
                totals[file.broker_name, run] = count + len(hashes), (total + int(hashes.sum())) & (2**64 - 1)
    return dict(totals)


def _by_run(rows: pa.Table) -> Iterator[tuple[str, NDArray[np.uint64]]]:
    """The hashes of the rows of each run."""
    hashes = row_hashes(rows)
    runs = rows["run"].combine_chunks().dictionary_encode()
    numbers = runs.indices.to_numpy()
    for number, run in enumerate(runs.dictionary.to_pylist()):
        yield run, hashes[numbers == number]


def row_hashes(rows: pa.Table) -> NDArray[np.uint64]:
    """A hash of each row, the same in one process for the same values."""
    total = np.zeros(len(rows), np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.columns:
            mixed = (_value_hashes(column.combine_chunks()) + total) * _MULTIPLIER
            total = mixed ^ (mixed >> np.uint64(29))
    return total


def _value_hashes(values: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_nested(values.type):
        values = pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    encoded = values.dictionary_encode(null_encoding="encode")
    distinct = np.array([hash(value) & (2**64 - 1) for value in encoded.dictionary.to_pylist()], np.uint64)
    hashes: NDArray[np.uint64] = distinct[encoded.indices.to_numpy()]
    return hashes
