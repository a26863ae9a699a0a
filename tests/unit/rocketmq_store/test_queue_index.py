"""The first entry of a queue whose message is in the log, and the queue's end, against all entries read in order."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Options, Rdict

from schemas.rocketmq_store.queue_files import (
    ENTRIES_AT_ONCE,
    ENTRY,
    MOST_LAG,
    QUEUE_DATABASES,
    DatabaseIndex,
    Entry,
    QueueIndex,
    queue_index,
    reads_database,
)
from schemas.storage import Storage
from tests.records import entry


def write_queue(folder: Path, offsets: list[int], file_entries: int) -> None:
    """A queue of messages at these physical offsets. The last file is preallocated."""
    queue = folder / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    for first in range(0, len(offsets), file_entries):
        entries = np.zeros(file_entries, ENTRY)
        part = offsets[first : first + file_entries]
        entries["commitlog_offset"][: len(part)] = part
        entries["size"][: len(part)] = 100
        (queue / f"{first * ENTRY.itemsize:020}").write_bytes(entries.tobytes())


@pytest.mark.parametrize("seed", range(20))
def test_first_entry_in_the_log_and_end(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    entries = choose.choice([1, 2, 700, ENTRIES_AT_ONCE, 5 * ENTRIES_AT_ONCE, 30_000])
    file_entries = choose.choice([1_000, ENTRIES_AT_ONCE + 1, 20_000])
    offsets = sorted(choose.sample(range(10 * entries), entries))
    write_queue(tmp_path, offsets, file_entries)
    index = QueueIndex(Storage.at(str(tmp_path)))
    assert index.end("T", 0) == entries
    for log_start in [0, offsets[-1], offsets[-1] + 1, *choose.choices(offsets, k=5)]:
        expected = next(i for i, offset in zip(count(), [*offsets, log_start], strict=False) if offset >= log_start)
        assert index.min_offset("T", 0, log_start) == expected
    assert [index.entry("T", 0, number).commitlog_offset for number in range(0, entries, 97)] == offsets[::97]  # type: ignore[union-attr]
    assert index.entry("T", 0, entries) is None


def test_what_the_broker_writes_before_the_first_entry_is_no_message(tmp_path: Path) -> None:
    """Source: ConsumeQueue.fillPreBlank."""
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(entry(0, 2**31 - 1, None) + entry(0, 100, None))
    index = QueueIndex(Storage.at(str(tmp_path)))

    assert (index.entry("T", 0, 0), index.entry("T", 0, 1)) == (None, Entry(0, 100, 0))


@pytest.mark.parametrize("folder", QUEUE_DATABASES)
@pytest.mark.parametrize(("later", "in_database"), [(0, False), (MOST_LAG, False), (MOST_LAG + 1, True)])
def test_a_broker_that_has_both_reads_the_database_only_if_its_files_end_earlier(
    folder: str, later: int, in_database: bool, tmp_path: Path
) -> None:
    """With double writes both grow; a broker that was moved into the database leaves its files as they were."""
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    database = Rdict(
        str(tmp_path / folder), options, {"default": Options(raw_mode=True), "offset": Options(raw_mode=True)}
    )
    head = b"\0\0\0\1\1T\1"
    for offset, at in enumerate((100, 200, 200 + later)):
        value = (1000 * offset).to_bytes(8, "big") + (90).to_bytes(4, "big") + bytes(8) + at.to_bytes(8, "big")
        database[head + bytes(4) + b"\1" + offset.to_bytes(8, "big")] = value
    bounds = database.get_column_family("offset")
    bounds[head + b"max\1" + bytes(4)] = (2000).to_bytes(8, "big") + (2).to_bytes(8, "big")
    bounds[head + b"min\1" + bytes(4)] = bytes(16)
    database.close()
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    entries = ((1000 * offset).to_bytes(8, "big") + (90).to_bytes(4, "big") + bytes(8) for offset in (0, 1))
    (queue / f"{0:020}").write_bytes(b"".join(entries) + bytes(200))
    index = queue_index(Storage.at(str(tmp_path)))
    assert reads_database(Storage.at(str(tmp_path))) == isinstance(index, DatabaseIndex) == in_database
    assert index.queues == [("T", 0)]
    assert (index.end("T", 0), index.end("U", 0)) == (3 if in_database else 2, 0)
    assert [index.min_offset("T", 0, start) for start in (0, 1, 1000, 5000)] == [0, 1, 1, index.end("T", 0)]
    assert index.entry("T", 0, 1) == Entry(1000, 90, 0)
    assert [index.entry("T", 0, offset) for offset in (-1, 3, 2**63)] == [None, None, None]
