"""The segment files of a commit log, and the walk over one: whole records, and damage."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.store.record_layout import (
    FIELDS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    Found,
    inspect,
    walk,
)

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 1 << 16
DAMAGE_BYTES = 1 << 20

REASONS = {
    Found.ZEROS: "zeros where a record should begin",
    Found.INCOMPLETE: "incomplete: the file ends inside the record",
    Found.ILLEGAL_MAGIC: "illegal magic code",
    Found.INCONSISTENT: "the record's lengths do not add up to its size",
    Found.ILLEGAL_PORT: "a host's port is not between 0 and 65535",
}


class CommitLogError(ValueError):
    """A path that holds no commit log; the message says what to give instead."""


@dataclass(frozen=True)
class Segment:
    """A segment file: the physical offset of its first byte, and its size in bytes when it was listed."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True)
class Damage:
    """Bytes that are no message: at most DAMAGE_BYTES of them, longer damage comes in several pieces."""

    source_file: str
    offset: int
    reason: str
    bytes: bytes


@dataclass(frozen=True)
class Records:
    """Whole, decodable records of one segment: one position in ``log`` a record for each of FIELDS."""

    segment: Segment
    log: NDArray[np.uint8] = field(repr=False)
    layout: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return self.layout.shape[1]

    def at(self, name: str) -> NDArray[np.int64]:
        """Positions in ``log``, or lengths in bytes, of one of FIELDS."""
        return self.layout[FIELDS.index(name)]

    def where(self, mask: NDArray[np.bool_]) -> "Records":
        """The records that ``mask`` selects."""
        return Records(self.segment, self.log, np.ascontiguousarray(self.layout[:, mask]))


def segments(path: str) -> list[Segment]:
    """The segment files of a store folder or of its ``commitlog`` folder, by offset. Raises CommitLogError."""
    given = Path(path)
    if not given.is_dir():
        what = "is a file" if given.exists() else "does not exist"
        raise CommitLogError(f"{given} {what}; give a broker's store folder, or the commitlog folder in it")
    folder = given / "commitlog" if (given / "commitlog").is_dir() else given
    named = [file for file in folder.iterdir() if file.name.isdecimal() and file.is_file()]
    if not named:
        raise CommitLogError(
            f"{folder} holds no commit log segment, a file named by its offset as 00000000000000000000; "
            f"give a broker's store folder, or the commitlog folder in it"
        )
    return sorted((Segment(str(file), int(file.name), file.stat().st_size) for file in named), key=lambda s: s.offset)


def scan(segment: Segment, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Records | Damage]:
    """Everything in a segment, in order: records in chunks, and what lies between them.

    The filler at the end of a full file, and the zeros after the last record of one that is not full, are nothing.
    After damage the walk goes on at the next record that knows its own offset.
    """
    if segment.size == 0:
        return
    with open(segment.path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    log = np.frombuffer(mapped, np.uint8)[: segment.size]
    position = 0
    while True:
        layout = np.empty((len(FIELDS), CHUNK_ROWS), np.int64)
        rows, position, what = walk(log, position, chunk_bytes, layout)
        if rows:
            yield Records(segment, log, np.ascontiguousarray(layout[:, :rows]))
        if what == Found.BUDGET:
            continue
        if what == Found.FILLER or _last_byte(log, position) <= position:
            return
        following = _resume(log, mapped, segment.offset, position)
        for start in range(position, following, DAMAGE_BYTES):
            piece = log[start : min(start + DAMAGE_BYTES, following)].tobytes()
            yield Damage(segment.path, segment.offset + start, REASONS[Found(what)], piece)
        position = following


def _last_byte(log: NDArray[np.uint8], start: int) -> int:
    """The position after the last byte that is not zero, at least ``start``."""
    end = len(log)
    while end > start:
        begin = max(start, end - DAMAGE_BYTES)
        used = np.flatnonzero(log[begin:end])
        if len(used):
            return begin + int(used[-1]) + 1
        end = begin
    return start


def _resume(log: NDArray[np.uint8], mapped: mmap.mmap, offset: int, position: int) -> int:
    """Where to go on after ``position``, which holds no decodable record."""
    claimed = _int_at(mapped, position) if position + 4 <= len(log) else 0
    if claimed > 8 and _may_begin(log, mapped, offset, position + claimed):
        return position + claimed
    scratch = np.empty((len(FIELDS), 1), np.int64)
    found = position
    for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK):
        pass
    return found


def _may_begin(log: NDArray[np.uint8], mapped: mmap.mmap, offset: int, position: int) -> bool:
    return False


def _int_at(mapped: mmap.mmap, position: int) -> int:
    return int.from_bytes(mapped[position : position + 4], "big", signed=True)
