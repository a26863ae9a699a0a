"""Where a commit log goes on after bytes that are no record."""

import mmap
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from schemas.store.record_layout import FIELDS, MAGIC_BLANK, PHYSICAL_OFFSET, Found, inspect

MESSAGE = bytes.fromhex("daa320")  # V1 and V2 differ in the byte after
FILLER = MAGIC_BLANK.to_bytes(4, "big", signed=True)

Log = NDArray[np.uint8]


def end_of_data(log: Log, start: int) -> int:
    """The position after the last byte that is not zero; ``start`` where only zeros follow."""
    end = len(log)
    while end > start:
        begin = max(start, end - (1 << 20))
        used = np.flatnonzero(log[begin:end])
        if len(used):
            return begin + int(used[-1]) + 1
        end = begin
    return start


def next_position(log: Log, mapped: mmap.mmap, offset: int, position: int) -> int:
    """Where to go on after ``position``, which holds no decodable record; ``offset`` is that of the file.

    A record may be whole and still not decodable: where its size leads to what may begin a record, that is next.
    Else the next decodable record that knows its own offset, or a filler that fills the file; else the end.
    """
    claimed = position + _number(mapped, position, 4)
    if claimed > position + 8 and _may_begin(log, mapped, offset, claimed):
        return claimed
    scratch = np.empty((len(FIELDS), 1), np.int64)
    end = len(log)
    for start in _candidates(mapped, MESSAGE, position + 1, end):
        if inspect(log, start, scratch, 0) == Found.RECORD and _knows_its_offset(mapped, offset, start):
            end = start
            break
    for start in _candidates(mapped, FILLER, position + 1, end):
        if start + _number(mapped, start, 4) == len(log):
            return start
    return end if end < len(log) else end_of_data(log, position)


def _candidates(mapped: mmap.mmap, magic: bytes, start: int, end: int) -> Iterator[int]:
    """The positions from ``start`` on where a record with this magic code would begin."""
    found = mapped.find(magic, start + 4, end)
    while found >= 0:
        yield found - 4
        found = mapped.find(magic, found + 1, end)


def _may_begin(log: Log, mapped: mmap.mmap, offset: int, position: int) -> bool:
    if position >= len(log):
        return position == len(log)
    magic = mapped[position + 4 : position + 8]
    if magic == FILLER:
        return position + _number(mapped, position, 4) == len(log)
    if magic[:3] == MESSAGE:
        return _knows_its_offset(mapped, offset, position)
    return end_of_data(log, position) == position


def _knows_its_offset(mapped: mmap.mmap, offset: int, position: int) -> bool:
    return _number(mapped, position + PHYSICAL_OFFSET, 8) == offset + position


def _number(mapped: mmap.mmap, position: int, width: int) -> int:
    return int.from_bytes(mapped[position : position + width], "big", signed=True)
