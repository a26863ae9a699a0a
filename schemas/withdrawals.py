"""The rows of earlier runs that a run removed, made again or moved, as its ledger entry records them.

Audits compare the rows of earlier nights with those of the last audit, and leave out those that a later run withdrew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.delta.table import Table
from schemas.delta.table_rows import Condition, Where, without
from schemas.ledger_inputs import WITHDRAWN
from schemas.run_ledger import MAINTAIN, LedgerEntry


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
    found = (json.dumps([each.table_name, *map(_condition_json, each.where)]) for each in withdrawals)
    return f"[{', '.join(dict.fromkeys(found))}]"


def withdrawals_since(
    entries: Sequence[LedgerEntry], table: Table, version: int, broker_name: str | None
) -> list[Withdrawal]:
    """The withdrawals from a table after one of its versions. ``entries``: all of the ledger, with maintenance.

    ``broker_name``: of the rows; None in a table whose rows are of no broker.
    """
    found = []
    for entry in entries:
        state = entry.tables.get(table.name)
        if state is None or state.version <= version:
            continue
        if entry.job == MAINTAIN:
            found += _parse(entry.inputs.get(f"{broker_name}/{WITHDRAWN}", "[]"), table)
        elif entry.broker_name == broker_name:
            found += _parse(entry.inputs.get(WITHDRAWN, "[]"), table)
    return found


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
