"""A queue's files on disk against the entries that the broker should have written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from answers.verify import MAX_DIFFERENCES, QueueVerification
from schemas.rocketmq_store.queue_files import BYTES_AT_ONCE, ENTRY, Difference, QueueEntries, encode_units
from schemas.storage import Storage

EXTENSION_FILE = 128


def queue_entries(count: int) -> QueueEntries:
    """The first entries of a queue, of messages of 100 bytes."""
    numbers = np.arange(count)
    bit_maps = pa.array([b"\1" * 14] * count, pa.binary())
    return QueueEntries(0, 100 * numbers, np.full(count, 100, np.int32), numbers + 7, 1000 * numbers, bit_maps)


def write_queue(folder: Path, entries: QueueEntries, room: int, codes: np.ndarray | None = None) -> int:
    """Writes the queue's file with room for more entries. Returns the file's size."""
    stored = np.zeros(len(entries) + room, ENTRY)
    stored["commitlog_offset"][: len(entries)] = entries.commitlog_offset
    stored["size"][: len(entries)] = entries.size
    stored["tags_code"][: len(entries)] = entries.tags_code if codes is None else codes
    file = folder / "consumequeue" / "T" / "0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(stored.tobytes())
    return stored.nbytes


def write_extension(folder: Path, entries: QueueEntries) -> np.ndarray:
    """Writes the queue's extension. Returns the addresses of its units."""
    codes, units = encode_units(entries.tags_code, entries.store_timestamp, entries.bit_maps, EXTENSION_FILE)
    extension = folder / "consumequeue_ext" / "T" / "0"
    extension.mkdir(parents=True)
    for at in range(0, len(units), EXTENSION_FILE):
        octets = units[at : at + EXTENSION_FILE].tobytes().ljust(EXTENSION_FILE, b"\0")
        (extension / f"{at:020d}").write_bytes(octets)
    return codes


ENTRIES_AT_ONCE = BYTES_AT_ONCE // ENTRY.itemsize


@pytest.mark.parametrize("newer", [0, 1, ENTRIES_AT_ONCE, ENTRIES_AT_ONCE + 1, 2 * ENTRIES_AT_ONCE + 3])
def test_newer_entries_are_counted_and_are_no_difference(tmp_path: Path, newer: int) -> None:
    known = 5
    entries = queue_entries(known + newer)
    size = write_queue(tmp_path, entries, room=20)
    queue = QueueVerification(Storage.at(str(tmp_path)), "T", 0, 0, size, EXTENSION_FILE)
    first = slice(0, known)
    queue.add(
        QueueEntries(
            0, entries.commitlog_offset[first], entries.size[first], entries.tags_code[first],
            entries.store_timestamp[first], entries.bit_maps[first],
        )
    )  # fmt: skip
    assert (queue.finish(), queue.differences) == (newer, [])


def verify_unknown_bit_maps(folder: Path, entries: QueueEntries, log_start: int, size: int) -> list[Difference]:
    queue = QueueVerification(
        Storage.at(str(folder)), "T", 0, log_start, size, EXTENSION_FILE, has_extension=True, knows_bit_maps=False
    )
    queue.add(entries)
    assert queue.finish() == 0
    return queue.differences


def extension_file(folder: Path, number: int) -> Path:
    return folder / "consumequeue_ext" / "T" / "0" / f"{number * EXTENSION_FILE:020d}"


def test_units_of_deleted_messages_may_be_deleted_with_their_file(tmp_path: Path) -> None:
    """ConsumeQueueExt.truncateByMinAddress. Three units fit in a file, and bit maps are not known."""
    entries = queue_entries(10)
    size = write_queue(tmp_path, entries, 5, write_extension(tmp_path, entries))
    extension_file(tmp_path, 0).unlink()
    assert verify_unknown_bit_maps(tmp_path, entries, 300, size) == []
    missing = Difference(f"consumequeue_ext/{0:020d}", None, "the file is missing")
    assert verify_unknown_bit_maps(tmp_path, entries, 200, size) == [missing]


def test_a_missing_file_of_the_extension_hides_no_other_difference(tmp_path: Path) -> None:
    """Bit maps are not known. The last entry of the queue has an address beyond the extension."""
    entries = queue_entries(10)
    codes = write_extension(tmp_path, entries)
    codes[9] += 100 * EXTENSION_FILE
    size = write_queue(tmp_path, entries, 5, codes)
    second = bytearray(extension_file(tmp_path, 1).read_bytes())
    second[2 + 7] ^= 1  # the tags code of the fourth entry
    extension_file(tmp_path, 1).write_bytes(second)
    assert [(each.file, each.queue_offset) for each in verify_unknown_bit_maps(tmp_path, entries, 0, size)] == [
        (f"consumequeue_ext/{EXTENSION_FILE:020d}", 3),
        (f"consumequeue_ext/{103 * EXTENSION_FILE:020d}", None),
    ]


def test_the_first_unit_of_a_queue_is_at_the_start_of_its_extension(tmp_path: Path) -> None:
    """Here another unit comes before it, and all addresses lead to the right units."""
    entries = queue_entries(11)
    addresses = write_extension(tmp_path, entries)
    without_first = QueueEntries(
        0, entries.commitlog_offset[1:], entries.size[1:], entries.tags_code[1:], entries.store_timestamp[1:],
        entries.bit_maps[1:],
    )  # fmt: skip
    size = write_queue(tmp_path, without_first, 5, addresses[1:])
    queue = QueueVerification(Storage.at(str(tmp_path)), "T", 0, 0, size, EXTENSION_FILE, has_extension=True)
    queue.add(without_first)
    queue.finish()
    assert queue.differences[0] == Difference(
        f"consumequeue/{0:020d}", 0, f"tags_code is {addresses[1]}, should be {addresses[0]}"
    )


def test_verification_ends_after_very_many_differences(tmp_path: Path) -> None:
    entries = queue_entries(3 * MAX_DIFFERENCES)
    write_queue(tmp_path, entries, 0, entries.tags_code + 1)
    whole = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    data, size = whole.read_bytes(), MAX_DIFFERENCES * ENTRY.itemsize
    for at in range(0, len(data), size):
        (whole.parent / f"{at:020d}").write_bytes(data[at : at + size])
    queue = QueueVerification(Storage.at(str(tmp_path)), "T", 0, 0, size, EXTENSION_FILE)
    queue.add(entries)
    queue.finish()
    assert len(queue.differences) == MAX_DIFFERENCES


def part(entries: QueueEntries, begin: int, end: int) -> QueueEntries:
    rows = slice(begin, end)
    return QueueEntries(
        begin, entries.commitlog_offset[rows], entries.size[rows], entries.tags_code[rows],
        entries.store_timestamp[rows], entries.bit_maps.slice(begin, end - begin),
    )  # fmt: skip


@pytest.mark.parametrize("bounds", [(0, 4, 5, 9), (4, 9, 0, 4), (5, 9, 4, 5)])
@pytest.mark.parametrize("newer", [0, 2])
def test_entries_may_come_in_any_order(tmp_path: Path, bounds: tuple[int, ...], newer: int) -> None:
    """Row groups are read file by file, and the files of a queue may overlap."""
    entries = queue_entries(9 + newer)
    size = write_queue(tmp_path, entries, room=20, codes=write_extension(tmp_path, entries))
    queue = QueueVerification(
        Storage.at(str(tmp_path)), "T", 0, 0, size, EXTENSION_FILE, has_extension=True, knows_bit_maps=True
    )
    for begin, end in (bounds[:2], bounds[2:]):
        queue.add(part(entries, begin, end))
    assert (queue.finish(), queue.differences) == (newer, [])


@pytest.mark.parametrize("newer", [1, 4])
def test_units_whose_entries_were_not_copied_yet_are_no_difference(tmp_path: Path, newer: int) -> None:
    """A copy of a real broker under traffic had such a unit: the queue's folder was copied before the extension's."""
    entries = queue_entries(8 + newer)
    codes = write_extension(tmp_path, entries)
    copied = part(entries, 0, 8)
    size = write_queue(tmp_path, copied, room=20, codes=codes[:8])
    queue = QueueVerification(Storage.at(str(tmp_path)), "T", 0, 0, size, EXTENSION_FILE, has_extension=True)
    queue.add(copied)
    assert (queue.finish(), queue.differences) == (0, [])


def test_what_follows_the_last_unit_is_checked_if_the_last_entry_came_first(tmp_path: Path) -> None:
    entries = queue_entries(9)
    size = write_queue(tmp_path, entries, room=20, codes=write_extension(tmp_path, entries))
    last = sorted((tmp_path / "consumequeue_ext" / "T" / "0").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\1")
    queue = QueueVerification(Storage.at(str(tmp_path)), "T", 0, 0, size, EXTENSION_FILE, has_extension=True)
    queue.add(part(entries, 4, 9))
    queue.add(part(entries, 0, 4))
    assert queue.finish() == 0
    assert [(each.queue_offset, "what follows the unit" in each.reason) for each in queue.differences] == [(8, True)]
