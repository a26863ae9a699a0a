"""Walks over a segment: finds whole records, and the damage between them.

1. A chunk of a few MiB is read, and the loop in :mod:`schemas.rocketmq_store.record_layout` goes from record to record
   by their sizes. It notes where the fields of each are (Records), and stops at the first bytes that are no whole
   record.
2. There RecordSearch looks closer: is it a longer record, the filler at the end of a full segment, zeros, or damage?
3. After damage the walk continues at the next record that knows its own physical offset: bytes in a body may look like
   a record, but do not have that. What lies between is Damage, with its reason and its bytes.

A Walk covers a part of a segment, so that several tasks can share it. :func:`scan` walks over all of it.
The CRCs of bodies are computed many at once (UtilAll.crc32): slicing by eight (Kounavis and Berry, 2005).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filtering.broker_config import SHORTEST_RECORD
from filtering.frozen import frozen
from filtering.kernels.compile import compiled
from filtering.kernels.registers import load_word
from schemas.rocketmq_store.record_layout import (
    BORN_HOST,
    DLEDGER_BLANK,
    DLEDGER_HEADER,
    FIELDS,
    GREATEST_QUEUE_OFFSET,
    LONGEST,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NUMBER_FIELDS,
    PHYSICAL_OFFSET,
    RECONSUME_TIMES,
    Bytes,
    BytesKind,
    header_at,
    inspect,
    ints,
    longs,
    walk,
)
from schemas.rocketmq_store.segments import Segment, SegmentBytes

# The search after damage.


MESSAGE = bytes.fromhex("daa320")  # V1 and V2 differ in the byte after
FILLER_OCTETS = MAGIC_BLANK.to_bytes(4, "big", signed=True)
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

    def look(self, position: int) -> tuple[BytesKind, int]:
        """The kind of bytes at a position, and the size of a record or filler there."""
        remaining = self._file.size - position
        size, magic = self._number(position, 4), self._number(position + 4, 4)
        if remaining < 8:
            return BytesKind.INCOMPLETE, 0
        if size == DLEDGER_BLANK and magic == remaining:
            return BytesKind.FILLER, remaining
        if magic == MAGIC_BLANK:
            return (BytesKind.FILLER, size) if size >= remaining else (BytesKind.INCONSISTENT, 0)
        if magic not in (MAGIC_V1, MAGIC_V2):
            return (BytesKind.ZEROS if size == 0 and magic == 0 else BytesKind.ILLEGAL_MAGIC), 0
        if size > remaining:
            return BytesKind.INCOMPLETE, 0
        if size > LONGEST:
            return BytesKind.TOO_LONG, 0
        return BytesKind(inspect(self._file.read(position, max(size, 8)), 0, self._scratch, 0)), size

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
            elif self._knows_its_offset(start) and self.look(start)[0] == BytesKind.RECORD:
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
        fillers = [(at - 4, True) for at in _find_all(data, FILLER_OCTETS)]
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


# CRCs of bodies.


POLYNOMIAL = 0xEDB88320
_LOW = np.uint32(0xFF)


def _tables() -> NDArray[np.uint32]:
    """table[k][b]: the CRC of the byte b followed by k zero bytes."""
    numbers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        numbers = np.where(numbers & 1, np.uint32(POLYNOMIAL) ^ (numbers >> np.uint32(1)), numbers >> np.uint32(1))
    tables = [numbers]
    for _ in range(7):
        tables.append(tables[0][tables[-1] & _LOW] ^ (tables[-1] >> np.uint32(8)))
    return np.stack(tables)


TABLES = _tables()


def crc_of(body: bytes) -> int:
    """The bodyCRC of an undamaged record with this body."""
    return zlib.crc32(body) & 0x7FFFFFFF


@compiled
def body_crcs(log: Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """The bodyCRC of undamaged records: crc32 of the stored body without the sign bit, 0 for an empty one."""
    crcs = np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        at = int(starts[row])
        end = at + int(lengths[row])
        crc = np.uint32(0xFFFFFFFF)
        while at + 8 <= end:
            word = load_word(log, at) ^ np.uint64(crc)
            crc = np.uint32(0)
            for byte in range(8):
                crc ^= TABLES[7 - byte, np.int64((word >> np.uint64(8 * byte)) & np.uint64(0xFF))]
            at += 8
        while at < end:
            crc = TABLES[0, np.int64((crc ^ np.uint32(log[at])) & _LOW)] ^ (crc >> np.uint32(8))
            at += 1
        crcs[row] = np.int32((crc ^ np.uint32(0xFFFFFFFF)) & np.uint32(0x7FFFFFFF))
    return crcs


# The walk.


CHUNK_BYTES = 4 << 20
DAMAGE_BYTES = 1 << 20
AFTER_DAMAGE_BYTES = 1 << 16
"""Size of the first chunk after damage. If more damage follows, the bytes read ahead are read again."""
PIECE_BYTES = 1 << 12
"""Size of the chunk for a single record; a longer record is read in a longer one."""

REASONS = {
    BytesKind.ZEROS: "zeros where a record should begin",
    BytesKind.INCOMPLETE: "incomplete: the file ends inside the record",
    BytesKind.ILLEGAL_MAGIC: "illegal magic code where a record should begin",
    BytesKind.INCONSISTENT: "the lengths in the record do not add up to its size",
    BytesKind.ILLEGAL_PORT: "the port of a host is not between 0 and 65535",
    BytesKind.TOO_LONG: "the record claims more than 64 MiB",
    BytesKind.ILLEGAL_QUEUE_OFFSET: f"the queue offset is not between 0 and {GREATEST_QUEUE_OFFSET}",
}


@frozen
class Damage:
    """Bytes that are not a message, at most DAMAGE_BYTES of them. Longer damage comes in consecutive pieces.

    ``offset`` is the physical offset of the first byte.
    """

    source_file: str
    offset: int
    reason: str
    bytes: bytes


@frozen
class Records:
    """Whole, decodable records: positions and lengths in ``log``, FIELDS x records.

    ``offset`` is the physical offset of the first byte of ``log``; SLACK bytes more can be read after its last.
    """

    offset: int
    log: NDArray[np.uint8] = field(repr=False)
    layout: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.layout[0])

    def at(self, name: str) -> NDArray[np.int64]:
        """The column of ``layout`` for one of FIELDS."""
        column: NDArray[np.int64] = self.layout[FIELDS.index(name)]
        return column

    def numbers(self, name: str) -> NDArray[Any]:
        """One of NUMBER_FIELDS of each record."""
        field, after, kind = NUMBER_FIELDS[name]
        read = ints if kind is np.int32 else longs
        return read(self.log, self.at(field) + after)

    def physical_offsets(self) -> NDArray[np.int64]:
        """Where the records are in the log of the broker, whatever they say themselves."""
        return self.at("start") + self.offset

    def body_crcs(self) -> NDArray[np.int32]:
        """The CRC of each body, which an undamaged record has as ``body_crc``."""
        return body_crcs(self.log, self.at("body"), self.at("body_length"))

    def born_hosts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the born hosts begin in ``log``, and their lengths in bytes."""
        starts = self.at("start") + BORN_HOST
        return starts, self.at("store_timestamp") - starts

    def store_hosts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the store hosts begin in ``log``, and their lengths in bytes."""
        starts = self.at("store_host")
        return starts, self.at("body") + RECONSUME_TIMES - starts

    def first(self, count: int) -> Records:
        return Records(self.offset, self.log, self.layout[:, :count])

    def last(self) -> Records:
        return Records(self.offset, self.log, self.layout[:, len(self) - 1 :])


@dataclass
class Walk:
    """A walk over the part of a segment between two physical offsets.

    The walk gives the records and the damage that begin at or after ``start`` and before ``stop``. With
    ``synchronise`` it begins at the first record from ``start`` on that knows its own offset; the bytes before it
    belong to the previous walk, as do those of DLedger's header before that record. After the iteration, ``first`` and
    ``reached`` say which bytes it covered; ``first`` is None if it found nothing. Two consecutive walks covered all
    bytes if the second begins where the first ended.

    ``data_end`` is the physical offset after the last byte of the segment that is not zero. ``filled_to`` is the
    physical offset at which the segment ends by the filler that the walk found: a cut file ends before it.
    """

    segment: Segment
    start: int
    stop: int
    data_end: int
    synchronise: bool = False
    chunk_bytes: int = CHUNK_BYTES
    first: int | None = None
    reached: int = field(init=False)
    filled_to: int | None = None

    def __post_init__(self) -> None:
        self.reached = self.start

    def __iter__(self) -> Iterator[Records | Damage]:
        with self.segment.open() as file:
            search = RecordSearch(file, self.segment.offset, self.data_end - self.segment.offset)
            position = self.start - self.segment.offset
            if self.synchronise:
                position = search.next_record(position)
            stop = min(self.stop, self.data_end) - self.segment.offset
            begin, position = position, search.after_header(position)
            if position < stop:
                self.first = self.segment.offset + begin
            for piece, reached in self._pieces(file, search, position, stop):
                self.reached = self.segment.offset + reached
                yield piece

    def _pieces(
        self, file: SegmentBytes, search: RecordSearch, position: int, stop: int
    ) -> Iterator[tuple[Records | Damage, int]]:
        """Each piece, and the position after it."""
        chunk_bytes = self.chunk_bytes
        while position < stop:
            log = file.read(position, chunk_bytes)
            layout = np.empty((len(FIELDS), len(log) // SHORTEST_RECORD + 1), np.int64)
            rows = walk(log, layout)
            rows = int(np.searchsorted(layout[0, :rows], stop - position))
            kind, length = BytesKind.RECORD, 0
            if not rows:
                kind, length = search.look(position)
                if kind == BytesKind.RECORD:
                    log, layout = file.read(position, length), np.empty((len(FIELDS), 1), np.int64)
                    rows = walk(log, layout)
            if rows:
                last = rows - 1
                after = search.after_header(position + int(layout[0, last] + layout[1, last]))
                yield Records(self.segment.offset + position, log, layout[:, :rows]), after
                position = after
                chunk_bytes = min(self.chunk_bytes, 4 * chunk_bytes)
                continue
            if kind == BytesKind.FILLER:
                self.reached = self.segment.end
                self.filled_to = self.segment.offset + position + length
                return
            following = search.next_position(position)
            for at in range(position, following, DAMAGE_BYTES):
                piece = file.read(at, min(DAMAGE_BYTES, following - at)).tobytes()
                damage = Damage(self.segment.path, self.segment.offset + at, REASONS[kind], piece)
                yield damage, at + len(piece)
            position = following
            chunk_bytes = min(self.chunk_bytes, AFTER_DAMAGE_BYTES)


def scan(segment: Segment, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Records | Damage]:
    """Everything in a segment, in order: records in chunks of ``chunk_bytes``, and the damage between them.

    The filler at the end of a full file, and the zeros after the last record of another, are not damage.
    After damage the walk continues at the next record that knows its own offset.
    """
    yield from Walk(segment, segment.offset, segment.end, segment.data_end, chunk_bytes=chunk_bytes)


def first_piece(segment: Segment, offset: int, data_end: int | None = None) -> Records | Damage | None:
    """What begins at a physical offset of a segment: a record or damage; None at the end of its data.

    ``data_end``: the physical offset of that end; None: the end of the segment.
    """
    end = segment.end if data_end is None else data_end
    return next(iter(Walk(segment, offset, offset + 1, end, chunk_bytes=PIECE_BYTES)), None)
