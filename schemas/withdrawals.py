"""The rows of earlier runs that a run removed or made again, as its ledger entry records them.

Audits compare the rows of earlier nights with those of the last audit, and leave out those that a later run withdrew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table import Table
from schemas.delta.table_rows import Condition, Where, one_of, without
from schemas.run_ledger import MAINTAIN, REBUILT, WITHDRAWN, LedgerEntry
from schemas.tables import DERIVED_TABLES


@dataclass(frozen=True)
class Withdrawal:
    """Rows that one broker has in a table: those for which all conditions of ``where`` hold."""

    table_name: str
    where: Where

    def rest(self, rows: pa.Table) -> pa.Table:
        """The rows that are not withdrawn."""
        return without(rows, self.where) if self.where else rows.slice(0, 0)


def withdrawals_text(withdrawals: Iterable[Withdrawal]) -> str:
    """Withdrawals as JSON, each once."""
    found = [[withdrawal.table_name, *map(_condition_json, withdrawal.where)] for withdrawal in withdrawals]
    return json.dumps([row for i, row in enumerate(found) if row not in found[:i]])


def withdrawals_since(
    entries: Sequence[LedgerEntry], table: Table, version: int, broker_name: str | None
) -> list[Withdrawal]:
    """The withdrawals from a table after one of its versions. ``entries``: all of the ledger, with maintenance.

    ``broker_name``: of the rows; None in a table whose rows are of no broker.
    """
    found = []
    for number, entry in enumerate(entries):
        state = entry.tables.get(table.name)
        if state is None or state.version <= version:
            continue
        if entry.job == MAINTAIN and REBUILT in entry.inputs and table in DERIVED_TABLES:
            steps = _preparing_runs(entries[:number], broker_name, table)
            found.append(Withdrawal(table.name, [one_of("run", steps)]))
        elif entry.job != MAINTAIN and entry.broker_name == broker_name:
            found += _parse(entry.inputs.get(WITHDRAWN, "[]"), table)
    return found


def _preparing_runs(entries: Sequence[LedgerEntry], broker_name: str | None, table: Table) -> list[str]:
    """The runs that prepared nights. A rebuild repeats nights as wholes, so it leaves no rows of their steps.

    It keeps the committed offsets that were read for a night that has not been delivered.
    """
    steps = [entry for entry in entries if entry.broker_name == broker_name and entry.job != MAINTAIN]
    last = max((number for number, entry in enumerate(steps) if entry.delivers), default=-1)
    if table is CONSUMER_OFFSETS:
        steps = steps[: last + 1]
    return [entry.run for entry in steps if not entry.delivers]


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
