"""The files of one queue on disk: consume queue files, 20 bytes per entry (RocketMQ ConsumeQueue), or its extension.

A file has a fixed size and is named by its offset in the queue, in bytes. Bytes not yet written are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.rocketmq_store.commitlog.segments import is_mapped_file
from schemas.storage import Storage

ENTRY = np.dtype([("commitlog_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK = (0, 2**31 - 1, 0)
"""The entry that the broker writes before the first entry of a queue that does not begin at 0."""
BYTES_AT_ONCE = ENTRY.itemsize << 16
LONGEST_NAME = 255
"""Bytes of the longest name of a folder. A topic with a longer name has no files."""


@dataclass(frozen=True, eq=False)
class QueueEntries:
    """Entries of one queue with consecutive queue offsets from ``first`` on, as the broker should have written them.

    ``have_units``: the extension was on when the broker wrote them, so each has its unit there.
    """

    first: int
    commitlog_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]
    bit_maps: pa.BinaryArray
    have_units: bool = True

    def __len__(self) -> int:
        return len(self.size)

    def part(self, begin: int, end: int, have_units: bool) -> QueueEntries:
        """The entries numbered ``begin`` to ``end - 1``."""
        part = slice(begin, end)
        return QueueEntries(
            self.first + begin, self.commitlog_offset[part], self.size[part], self.tags_code[part],
            self.store_timestamp[part], self.bit_maps.slice(begin, end - begin), have_units,
        )  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A place where a file on disk is not what the broker should have written.

    ``queue_offset`` is the entry's, None if a file as a whole differs.
    """

    file: str
    queue_offset: int | None
    reason: str


class QueueFiles:
    """The files of one kind of one queue, read at positions from the start of the queue."""

    def __init__(self, storage: Storage, kind: str, topic: str, queue_id: int, file_size: int) -> None:
        self._storage = storage
        self.kind = kind
        self._folder = f"{kind}/{topic}/{queue_id}"
        can_exist = "\0" not in topic and len(topic.encode()) <= LONGEST_NAME
        found = storage.files(self._folder) if can_exist else []
        self.sizes = {int(info.base_name): info.size for info in found if is_mapped_file(info.base_name)}
        self.file_size = file_size

    def name(self, position: int) -> str:
        return f"{self.kind}/{self.start(position):020d}"

    def start(self, position: int) -> int:
        """The position at which the file that contains ``position`` begins."""
        return position // self.file_size * self.file_size

    def read(self, position: int, length: int) -> bytes | None:
        """Bytes of one file; None if it does not exist, fewer if it is too short."""
        start = self.start(position)
        if start not in self.sizes:
            return None
        with self._storage.file_system.open_input_file(f"{self._folder}/{start:020d}") as file:
            return bytes(file.read_at(length, position - start))

    def read_span(self, position: int, length: int) -> bytes | None:
        """Bytes of one or more files; None if one does not exist or is too short."""
        parts = []
        while length:
            count = min(length, self.start(position) + self.file_size - position)
            data = self.read(position, count)
            if data is None or len(data) < count:
                return None
            parts.append(data)
            position, length = position + count, length - count
        return b"".join(parts)

    def sized_differently(self) -> Iterator[Difference]:
        for start, size in sorted(self.sizes.items()):
            if size != self.file_size:
                name = f"{self.kind}/{start:020d}"
                yield Difference(name, None, f"the file has {size} bytes, should be {self.file_size}")

    def rest(self, position: int) -> Iterator[tuple[int, bytes]]:
        """All bytes from a position on, in pieces with their positions."""
        for start in sorted(start_of_file for start_of_file in self.sizes if start_of_file + self.file_size > position):
            at = max(start, position)
            while at < start + self.sizes[start]:
                data = self.read(at, min(BYTES_AT_ONCE, start + self.sizes[start] - at)) or b""
                yield at, data
                at += max(1, len(data))


def first_not_zero(data: bytes) -> int | None:
    """The position of the first byte that is not zero; None if there is none."""
    at = len(data) - len(data.lstrip(b"\0"))
    return at if at < len(data) else None
