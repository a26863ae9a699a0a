"""Finds the next record of a commit log after bytes that are not a record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schemas.rocketmq_store.commitlog.record_layout import (
    DLEDGER_BLANK,
    DLEDGER_HEADER,
    FIELDS,
    LONGEST,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    Found,
    header_at,
    inspect,
)
from schemas.rocketmq_store.commitlog.segments import SegmentBytes

MESSAGE = bytes.fromhex("daa320")  # V1 and V2 differ in the byte after
FILLER = MAGIC_BLANK.to_bytes(4, "big", signed=True)
FIRST_WINDOW = 1 << 14
GREATEST_WINDOW = 4 << 20


class RecordSearch:
    """Finds records in one segment. ``offset`` is the file's physical offset, ``data_end`` a position in the file.

    Positions may only grow from call to call: each byte is searched once, however many records are damaged.
    """

    def __init__(self, file: SegmentBytes, offset: int, data_end: int) -> None:
        self._file = file
        self._offset = offset
        self._data_end = data_end
        self._scratch = np.empty((len(FIELDS), 1), np.int64)
        self._candidates: Iterator[tuple[int, bool]] | None = None
        self._next = -1

    def look(self, position: int) -> tuple[Found, int]:
        """The kind of bytes at a position, and the size of a record or filler there."""
        remaining = self._file.size - position
        size, magic = self._number(position, 4), self._number(position + 4, 4)
        if remaining < 8:
            return Found.INCOMPLETE, 0
        if size == DLEDGER_BLANK and magic == remaining:
            return Found.FILLER, remaining
        if magic == MAGIC_BLANK:
            return (Found.FILLER, size) if size >= remaining else (Found.INCONSISTENT, 0)
        if magic not in (MAGIC_V1, MAGIC_V2):
            return (Found.ZEROS if size == 0 and magic == 0 else Found.ILLEGAL_MAGIC), 0
        if size > remaining:
            return Found.INCOMPLETE, 0
        if size > LONGEST:
            return Found.TOO_LONG, 0
        return Found(inspect(self._file.read(position, max(size, 8)), 0, self._scratch, 0)), size

    def after_header(self, position: int) -> int:
        """The position after DLedger's header, if there is one at ``position``; else that position."""
        return position + int(header_at(self._file.read(position, DLEDGER_HEADER + 4), 0))

    def next_position(self, position: int) -> int:
        """The position to continue at after ``position``, where no decodable record begins.

        A record may be whole and still not decodable. If its size leads to a record that knows its own offset, the
        walk continues there. Else it continues at the next decodable record that knows its own offset, or at filler
        that fills the file. If there is none either, a size that leads past the data ends the record there.
        """
        claimed = position + self._number(position, 4)
        if claimed > position + 8 and self._begins(record := self.after_header(claimed)):
            return record
        following = self.next_record(position + 1)
        if following == self._data_end <= claimed <= self._file.size:
            return claimed
        return following

    def next_record(self, position: int) -> int:
        """The next decodable record that knows its own offset, or filler that fills the file; else the end."""
        if self._candidates is None:
            self._candidates = _candidates(self._file, position, self._data_end)
        while self._next < position:
            self._next = self._next_valid(self._candidates)
        return min(self._next, self._data_end)

    def _next_valid(self, candidates: Iterator[tuple[int, bool]]) -> int:
        for start, is_filler in candidates:
            if is_filler:
                if start + self._number(start, 4) == self._file.size:
                    return start
            elif self._knows_its_offset(start) and self.look(start)[0] == Found.RECORD:
                return start
        return self._file.size

    def _begins(self, position: int) -> bool:
        """Whether a record that knows its own offset begins at a position."""
        return self._file.read(position + 4, 3).tobytes() == MESSAGE and self._knows_its_offset(position)

    def _knows_its_offset(self, position: int) -> bool:
        return self._number(position + PHYSICAL_OFFSET, 8) == self._offset + position

    def _number(self, position: int, width: int) -> int:
        return int.from_bytes(self._file.read(position, width).tobytes(), "big", signed=True)


def _candidates(file: SegmentBytes, begin: int, end: int) -> Iterator[tuple[int, bool]]:
    """Where a record or a filler may begin, judged by its magic code, and whether it is a filler."""
    window = FIRST_WINDOW  # The next record is mostly near.
    while begin < end:
        data = file.read(begin, window + 7).tobytes()
        records = [(at - 4, False) for at in _find_all(data, MESSAGE)]
        fillers = [(at - 4, True) for at in _find_all(data, FILLER)]
        for at, is_filler in sorted(records + fillers):
            if 0 <= at < window:
                yield begin + at, is_filler
        begin += window
        window = min(4 * window, GREATEST_WINDOW)


def _find_all(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)
