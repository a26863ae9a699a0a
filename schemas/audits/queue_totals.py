"""How many entries the queues have, of all nights together.

The progress of the nights adds up, unless a queue began again at offset 0 (its topic was deleted and created again), or
maintenance removed nights with unreadable messages. Then the entries themselves are counted. That reads all entries of
the queue, so it is only done for queues that need it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import SHORTEST_RECORD
from schemas.audits.scope import Scope
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table import Table
from schemas.delta.table_rows import filtered, one_of, sorted_by, within
from schemas.queue_progress import QUEUE_PROGRESS

QUEUE_TOTALS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("entries", pa.int64()),
        ("unreadable_bytes", pa.int64()),
    ]
)
OF_NIGHTS = """
    SELECT p.broker_name, p.topic, p.queue_id, min(p.from_offset) AS from_offset,
      max(greatest(p.to_offset, coalesce(p.ended_at, 0))) AS to_offset,
      sum(p.entries) AS entries, max(b.unreadable_bytes) AS unreadable_bytes
    FROM all_queue_progress p JOIN brokers b ON b.broker_name = p.broker_name
    GROUP BY p.broker_name, p.topic, p.queue_id"""
"""The totals of the progress of all nights."""


def queue_totals(scope: Scope, rows: Callable[[str], pa.Table]) -> pa.Table:
    """Rows of QUEUE_TOTALS, one for each queue. ``rows`` answers an SQL query."""
    totals = rows(OF_NIGHTS).to_pylist()
    return pa.Table.from_pylist(
        [total if _is_full(total) else _of_stored_entries(scope, total) for total in totals], QUEUE_TOTALS
    )


def _is_full(total: dict[str, Any]) -> bool:
    """Whether the entries of a queue leave no gap but that of unreadable messages."""
    missing = total["to_offset"] - total["from_offset"] - total["entries"]
    return bool(0 <= missing * SHORTEST_RECORD <= total["unreadable_bytes"])


def _of_stored_entries(scope: Scope, total: dict[str, Any]) -> dict[str, Any]:
    """The total of a queue's stored entries since it began again, or since the nights that maintenance removed.

    The given total if there was neither, or if the stored entries are not as many as the nights have counted.
    """
    messages_from, first_kept = (of(total["broker_name"]) for of in (scope.messages_from, scope.first_kept))
    progress = _rows_of_queue(scope, QUEUE_PROGRESS, ["entries", "run"], total)
    counted = pc.sum(progress.filter(pc.greater_equal(progress["run"], first_kept))["entries"]).as_py() or 0
    entries = _rows_of_queue(scope, CONSUMEQUEUE, ["queue_offset", "commitlog_offset", "run"], total)
    stored = pc.sum(pc.greater_equal(entries["run"], first_kept)).as_py() or 0
    kept = sorted_by(filtered(entries, [within("commitlog_offset", messages_from)]), "commitlog_offset")
    offsets, places = (kept[name].to_numpy() for name in ("queue_offset", "commitlog_offset"))
    goes_back = (np.diff(offsets) <= 0) & (np.diff(places) > 0)
    began = np.flatnonzero(goes_back & (offsets[1:] * SHORTEST_RECORD <= total["unreadable_bytes"])) + 1
    if stored != counted or not (len(began) or messages_from):
        return total
    last = offsets[began[-1] if len(began) else 0 :].tolist()
    ends = {"from_offset": min(last), "to_offset": max(last) + 1} if last else {"from_offset": 0, "to_offset": 0}
    return total | ends | {"entries": len(last)}


def _rows_of_queue(scope: Scope, table: Table, columns: list[str], queue: dict[str, Any]) -> pa.Table:
    where = [one_of(name, [queue[name]]) for name in ("topic", "queue_id")]
    return scope.warehouse.rows(table, columns, where, scope.warehouse.files(table, queue["broker_name"]))
