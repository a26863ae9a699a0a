"""The walk over a segment: whole records, and the damage between them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader

import numpy as np
from numpy.typing import NDArray

from schemas.store.property_text import SLACK
from schemas.store.record_layout import FIELDS, SHORTEST, Found, walk
from schemas.store.resynchronise import end_of_data, next_position
from schemas.store.segments import Segment

CHUNK_BYTES = 4 << 20
DAMAGE_BYTES = 1 << 20

REASONS = {
    Found.ZEROS: "zeros where a record should begin",
    Found.INCOMPLETE: "incomplete: the file ends inside the record",
    Found.ILLEGAL_MAGIC: "illegal magic code where a record should begin",
    Found.INCONSISTENT: "the lengths in the record do not add up to its size",
    Found.ILLEGAL_PORT: "the port of a host is not between 0 and 65535",
}


@dataclass(frozen=True)
class Damage:
    """Bytes that are no message: at most DAMAGE_BYTES of them, longer damage comes in pieces one after another.

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
        """One of FIELDS."""
        column: NDArray[np.int64] = self.layout[FIELDS.index(name)]
        return column

    def where(self, mask: NDArray[np.bool_]) -> "Records":
        """The records that ``mask`` selects."""
        return Records(self.offset, self.log, self.layout[:, mask])


def scan(segment: Segment, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Records | Damage]:
    """Everything in a segment, in order: records in chunks of ``chunk_bytes`` or one each, and what lies between them.

    The filler at the end of a full file, and the zeros after the last record of another, are no damage.
    After damage the walk goes on at the next record that knows its own offset.
    """
    if segment.size == 0:
        return
    mapped = segment.map()
    whole = np.frombuffer(mapped, np.uint8)[: segment.size]
    position = 0
    with open(segment.path, "rb") as file:
        while position < len(whole):
            # Bytes that were read are in the processor's cache; mapped ones cost a miss or two a record.
            log = _read(file, position, min(chunk_bytes, len(whole) - position))
            layout = np.empty((len(FIELDS), len(log) // SHORTEST + 1), np.int64)
            rows, reached, found = walk(log, layout)
            if not rows:
                layout = np.empty((len(FIELDS), 1), np.int64)
                rows, reached, found = walk(whole[position:], layout)
                log = _read(file, position, reached)
            if rows:
                yield Records(segment.offset + position, log, layout[:, :rows])
                position += reached
                continue
            if found == Found.FILLER or end_of_data(whole, position) == position:
                return
            following = next_position(whole, mapped, segment.offset, position)
            for start in range(position, following, DAMAGE_BYTES):
                piece = whole[start : min(start + DAMAGE_BYTES, following)].tobytes()
                yield Damage(segment.path, segment.offset + start, REASONS[Found(found)], piece)
            position = following


def _read(file: BufferedReader, position: int, size: int) -> NDArray[np.uint8]:
    data = np.empty(size + SLACK, np.uint8)[:size]
    file.seek(position)
    data = data[: file.readinto(data.data)]
    data.flags.writeable = False  # as mapped bytes are: one compiled form of each kernel
    return data
