"""Rows that a run removes from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.night.commit import Changes
from schemas.delta.table import ROWS_OF_A_GROUP
from schemas.delta.table_rows import one_of
from schemas.delta.warehouse import Warehouse
from schemas.tables import QUEUE_PROGRESS


def row(queue_id: int, run: str) -> dict[str, Any]:
    offsets = {"from_offset": 0, "to_offset": 1, "entries": 1, "begins_at": 0}
    return {"topic": "T", "queue_id": queue_id, **offsets, "run": run}


def test_row_groups_stay_small_when_rows_are_removed(tmp_path: Path) -> None:
    """Readers hold one row group in memory."""
    warehouse = Warehouse.at(str(tmp_path))
    rows = [row(number, "a" if number == 5 else "b") for number in range(2 * ROWS_OF_A_GROUP)]
    changes = Changes(warehouse, "broker", "1")
    changes.add_rows(QUEUE_PROGRESS, [QUEUE_PROGRESS.rows_batch(rows)])
    changes.commit()
    changes = Changes(warehouse, "broker", "2")
    changes.delete_rows(QUEUE_PROGRESS, [one_of("run", ["a"])])
    changes.commit()
    (file,) = warehouse.files(QUEUE_PROGRESS, "broker")
    metadata = pq.read_metadata(tmp_path / "queue_progress" / file.path)
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert groups == [ROWS_OF_A_GROUP - 1, ROWS_OF_A_GROUP]
    assert 5 not in warehouse.rows(QUEUE_PROGRESS)["queue_id"].to_pylist()
