"""Tasks that read stored messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from jobs.night.past import BrokerState
from schemas.delta.table import StoredFile, Table
from schemas.messages.stored_messages import FILES_IN_A_TASK, MESSAGES_IN_A_TASK, StoredEntries, stored_ranges
from schemas.tables import QUEUE_PROGRESS


def files_of(table: Table, sizes: list[int]) -> list[StoredFile]:
    """Files of 1,000 bytes of the log each, with some numbers of rows."""
    return [
        StoredFile(
            f"{table.name}_{number}",
            1,
            rows,
            "broker",
            {"commitlog_offset": number * 1_000},
            {"commitlog_offset": number * 1_000 + 900},
        )
        for number, rows in enumerate(sizes)
    ]


def parts(sizes: list[int]) -> list[int]:
    """The number of files of each task."""
    ranges = stored_ranges(lambda table: files_of(table, sizes))
    assert [path for part in ranges for path in part.message_files] == [f"commitlog_{n}" for n in range(len(sizes))]
    for part in ranges:
        assert [path.split("_")[1] for path in part.entry_files] == [path.split("_")[1] for path in part.message_files]
    return [len(part.message_files) for part in ranges]


def test_a_task_has_a_limited_number_of_files() -> None:
    assert parts([1] * (2 * FILES_IN_A_TASK + 1)) == [FILES_IN_A_TASK, FILES_IN_A_TASK, 1]
    assert parts([]) == []


def test_a_task_has_a_limited_number_of_messages() -> None:
    half = MESSAGES_IN_A_TASK // 2
    assert parts([half, half, 1, half, half]) == [2, 2, 1]


def test_a_file_with_more_messages_has_a_task_of_its_own() -> None:
    assert parts([1, MESSAGES_IN_A_TASK + 1, 1]) == [1, 1, 1]


@pytest.mark.parametrize("stored", [[], [20], [10, 20, 40], [40, 10, 20]])
def test_a_message_before_between_or_after_all_entries_has_none(stored: list[int]) -> None:
    entries = StoredEntries(np.array(stored, np.int64), np.array(stored, np.int64), None)
    offsets = [0, 10, 20, 30, 40, 50]
    at, has_entry = entries.find(np.array(offsets, np.int64))
    assert has_entry.tolist() == [offset in stored for offset in offsets]
    assert [stored[place] for place in at[has_entry].tolist()] == sorted(stored)


def test_the_first_run_with_an_entry_from_an_offset_on() -> None:
    """A later run may have entries before those of an earlier one, if a message log grew in the middle."""
    ends = {"a": 3, "b": 5, "c": 2, "d": 7}
    rows = [{"topic": "T", "queue_id": 0, "to_offset": end, "run": run} for run, end in ends.items()]
    batch = QUEUE_PROGRESS.rows_batch([{"from_offset": 0, "entries": 1, **row} for row in rows])
    state = BrokerState((), read_progress=lambda: pa.Table.from_batches([batch]))
    assert [state.first_run_with("T", 0, offset) for offset in (0, 2, 3, 4, 5, 6, 7)] == [*"aabbdd", None]
    assert state.first_run_with("T", 1, 0) is None
