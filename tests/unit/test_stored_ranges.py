"""Tasks that read stored messages."""

from __future__ import annotations

from schemas.delta.stored_files import StoredFile
from schemas.delta.table import Table
from schemas.messages.stored_entries import FILES_IN_A_TASK, MESSAGES_IN_A_TASK, stored_ranges


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
