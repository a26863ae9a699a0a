"""Walks over a segment: finds whole records, and the damage between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filtering.broker_config import SHORTEST_RECORD
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.crc import body_crcs
from schemas.rocketmq_store.commitlog.record_layout import (
    BORN_HOST,
    FIELDS,
    GREATEST_QUEUE_OFFSET,
    NUMBER_FIELDS,
    RECONSUME_TIMES,
    Found,
    walk,
)
from schemas.rocketmq_store.commitlog.record_search import RecordSearch
from schemas.rocketmq_store.commitlog.segments import Segment, SegmentBytes

CHUNK_BYTES = 4 << 20
DAMAGE_BYTES = 1 << 20
AFTER_DAMAGE_BYTES = 1 << 16
"""Size of the first chunk after damage. If more damage follows, the bytes read ahead are read again."""
PIECE_BYTES = 1 << 12
"""Size of the chunk for a single record; a longer record is read in a longer one."""

REASONS = {
    Found.ZEROS: "zeros where a record should begin",
    Found.INCOMPLETE: "incomplete: the file ends inside the record",
    Found.ILLEGAL_MAGIC: "illegal magic code where a record should begin",
    Found.INCONSISTENT: "the lengths in the record do not add up to its size",
    Found.ILLEGAL_PORT: "the port of a host is not between 0 and 65535",
    Found.TOO_LONG: "the record claims more than 64 MiB",
    Found.ILLEGAL_QUEUE_OFFSET: f"the queue offset is not between 0 and {GREATEST_QUEUE_OFFSET}",
}


@dataclass(frozen=True)
class Damage:
    """Bytes that are not a message, at most DAMAGE_BYTES of them. Longer damage comes in consecutive pieces.

    ``offset`` is the physical offset of the first byte.
    """

    source_file: str
    offset: int
    reason: str
    bytes: bytes


@dataclass(frozen=True)
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
        read = gather.ints if kind is np.int32 else gather.longs
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
        """The first ``count`` records."""
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
            found, length = Found.RECORD, 0
            if not rows:
                found, length = search.look(position)
                if found == Found.RECORD:
                    log, layout = file.read(position, length), np.empty((len(FIELDS), 1), np.int64)
                    rows = walk(log, layout)
            if rows:
                last = rows - 1
                after = search.after_header(position + int(layout[0, last] + layout[1, last]))
                yield Records(self.segment.offset + position, log, layout[:, :rows]), after
                position = after
                chunk_bytes = min(self.chunk_bytes, 4 * chunk_bytes)
                continue
            if found == Found.FILLER:
                self.reached = self.segment.end
                self.filled_to = self.segment.offset + position + length
                return
            following = search.next_position(position)
            for at in range(position, following, DAMAGE_BYTES):
                piece = file.read(at, min(DAMAGE_BYTES, following - at)).tobytes()
                damage = Damage(self.segment.path, self.segment.offset + at, REASONS[found], piece)
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
