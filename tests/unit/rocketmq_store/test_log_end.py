"""Whether the last record of a log that its broker still writes to is complete."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from schemas.rocketmq_store.commitlog_walk import Records, scan
from schemas.rocketmq_store.recovery import fingerprint, is_unfinished
from schemas.rocketmq_store.segments import segments
from schemas.storage import Storage
from tests.records import entry, record

STORED_AT = 5000
GAP = b"TAGS\x01pa\0d\x02"
"""Properties with a zero: their last bytes may not be written yet, or a producer sent it."""
TAG = "pa\0d"
FIRST = record(0)


def last_record(properties: bytes = GAP, body: bytes = b"paid") -> bytes:
    made = record(len(FIRST), properties=properties, store_timestamp=STORED_AT, queue_offset=1)
    return made.replace(b"paid", body, 1)


def unfinished(folder: Path, last: bytes, entries: bytes = b"", flushed: int = 0, seen: str | None = None) -> bool:
    """``flushed``: the store time (ms) up to which the log is on disk."""
    (folder / "commitlog").mkdir()
    (folder / "commitlog" / f"{0:020d}").write_bytes((FIRST + last).ljust(1000, b"\0"))
    queue = folder / "consumequeue" / "OrderEvents" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(entries.ljust(100, b"\0"))
    (folder / "checkpoint").write_bytes(struct.pack(">6q", flushed, 0, 0, 0, 0, 0))
    store = Storage.at(str(folder))
    [segment] = segments(store)
    [records] = scan(segment)
    assert isinstance(records, Records)
    return is_unfinished(records, segment.data_end, store, seen)


def queue_of(last: bytes, size: int = 0, tag: str | None = TAG, at: int = len(FIRST)) -> bytes:
    return entry(0, len(FIRST), None) + entry(at, size or len(last), tag)


def test_a_record_without_gaps_is_complete(tmp_path: Path) -> None:
    assert not unfinished(tmp_path, last_record(b"TAGS\x01paid\x02"))


@pytest.mark.parametrize("last", [last_record(), last_record(b"TAGS\x01paid\x02", body=b"pa\0\0")])
def test_a_record_with_gaps_may_be_unfinished(tmp_path: Path, last: bytes) -> None:
    assert unfinished(tmp_path, last)


@pytest.mark.parametrize("changed", [b"", b"\x03"])
def test_a_record_that_the_night_before_saw_is_complete(tmp_path: Path, changed: bytes) -> None:
    last = last_record()
    assert unfinished(tmp_path, last, seen=fingerprint(last + changed)) == bool(changed)


@pytest.mark.parametrize(("flushed", "expected"), [(STORED_AT - 1, True), (STORED_AT, False)])
def test_a_record_with_an_entry_is_complete_once_the_log_is_flushed(
    tmp_path: Path, flushed: int, expected: bool
) -> None:
    last = last_record()
    assert unfinished(tmp_path, last, queue_of(last), flushed) == expected


@pytest.mark.parametrize(
    "entries",
    [
        b"",
        queue_of(last_record(), size=len(last_record()) - 1),
        queue_of(last_record(), at=len(FIRST) + 1),
        queue_of(last_record(), tag="paid"),
    ],
)
def test_an_entry_of_another_record_says_nothing(tmp_path: Path, entries: bytes) -> None:
    assert unfinished(tmp_path, last_record(), entries, flushed=STORED_AT)


def test_an_entry_with_an_address_has_no_tags_code_to_compare(tmp_path: Path) -> None:
    last = last_record()
    entries = entry(0, len(FIRST), None) + struct.pack(">qiq", len(FIRST), len(last), -(2**63))
    assert not unfinished(tmp_path, last, entries, flushed=STORED_AT)


@pytest.mark.parametrize("octets", [None, 0, 47])
def test_without_a_whole_checkpoint_a_record_with_gaps_may_be_unfinished(tmp_path: Path, octets: int | None) -> None:
    last = last_record()
    assert not unfinished(tmp_path, last, queue_of(last), flushed=STORED_AT)
    file = tmp_path / "checkpoint"
    content = file.read_bytes()
    file.unlink()
    if octets is not None:
        file.write_bytes(content[:octets])
    store = Storage.at(str(tmp_path))
    [segment] = segments(store)
    [records] = scan(segment)
    assert isinstance(records, Records)
    assert is_unfinished(records, segment.data_end, store, None)
