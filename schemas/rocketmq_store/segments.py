"""The segment files of a commit log: each is named by the physical offset of its first byte (MappedFileQueue)."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.frozen import frozen
from schemas.errors import UsageError
from schemas.storage import Storage

SLACK = 8
"""Bytes after the last one that readers of a chunk may touch: they load eight at a time."""
LOOK_BYTES = 1 << 20
LOOK_BYTES_REMOTE = 1 << 24
"""Bytes that each request reads while the end of a segment's data is searched for, in an object store."""
_NAME = re.compile(r"[0-9]{20}")


class CommitLogError(UsageError):
    """A path does not hold a commit log. The message says what to give instead."""


@dataclass(frozen=True, order=True)
class Segment:
    """A segment file: the physical offset of its first byte, its path in ``storage``, and its size when it was listed.

    Offsets and sizes are bytes.
    """

    offset: int
    path: str
    size: int
    storage: Storage = field(compare=False)

    @property
    def end(self) -> int:
        """The physical offset after its last byte."""
        return self.offset + self.size

    @cached_property
    def data_end(self) -> int:
        """The physical offset after the last byte that is not zero, determined on first use."""
        look = LOOK_BYTES if self.storage.is_local else LOOK_BYTES_REMOTE
        with self.open() as file:
            end = self._hole()
            while end > 0:
                begin = (end - 1) // look * look
                data = file.read(begin, end - begin)
                words = data[: len(data) // 8 * 8].view(np.uint64)
                if words.any() or data[len(words) * 8 :].any():
                    return self.offset + begin + int(np.flatnonzero(data)[-1]) + 1
                end = begin
        return self.offset

    def _hole(self) -> int:
        """The position of the hole that ends a preallocated file, in bytes; its size if no hole is found."""
        if not self.storage.is_local or not hasattr(os, "SEEK_DATA"):
            return self.size
        hole = 0
        with open(Path(self.storage.root) / self.path, "rb") as file:
            while hole < self.size:
                try:
                    data = os.lseek(file.fileno(), hole, os.SEEK_DATA)
                except OSError as error:
                    return hole if error.errno == errno.ENXIO else self.size  # ENXIO: no data follows
                hole = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        return self.size

    @contextmanager
    def open(self) -> Iterator[SegmentBytes]:
        """Its bytes, while the context lasts. Raises OSError if the file cannot be opened."""
        with self.storage.file_system.open_input_file(self.path) as file:
            yield SegmentBytes(file, self.size, self.path)


class SegmentBytes:
    """The bytes of an open segment file, read in pieces.

    Nothing is mapped into memory: a mapped file that another process cuts short kills the process that reads it.
    """

    def __init__(self, file: pa.NativeFile, size: int, name: str) -> None:
        self._file = file
        self._name = name
        self.size = size

    def read(self, position: int, length: int) -> NDArray[np.uint8]:
        """``length`` bytes from ``position`` on, fewer at the end of the file; SLACK more can be read after them.

        Raises CommitLogError if the file has become shorter since it was listed.
        """
        length = max(0, min(length, self.size - position))
        wanted = length + SLACK
        data = self._file.read_at(wanted, position)
        if len(data) < length:
            raise CommitLogError(
                f"{self._name} became shorter while it was read: let the copy of the store end, and run the same "
                "command again"
            )
        if len(data) < wanted:
            data = bytes(data).ljust(wanted, b"\0")
        return np.frombuffer(data, np.uint8)[:length]


@frozen
class LogRange:
    """A part of a segment, from the physical offset ``start`` to ``stop`` (exclusive).

    ``data_end``: the offset where the zeros at the end of the segment begin. ``synchronise``: ``start`` may be inside
    a record. ``ends_log``: the range is the last of the log; if its last record may be incomplete, the next night
    reads it, unless the bytes have the fingerprint ``seen`` of the night before. ``followed_by``: the physical offset
    of the next segment, if the range is the last of its segment: then the broker has filled the segment.
    """

    segment: Segment
    start: int
    stop: int
    data_end: int
    synchronise: bool = False
    ends_log: bool = False
    seen: str | None = None
    followed_by: int | None = None

    @property
    def ends_segment(self) -> bool:
        """Whether it is the last range of its segment."""
        return self.ends_log or self.followed_by is not None


def is_mapped_file(name: str) -> bool:
    """Whether the name is that of a broker's mapped file: the offset of its first byte (MappedFileQueue)."""
    return _NAME.fullmatch(name) is not None


def segments(storage: Storage) -> list[Segment]:
    """The segment files of a store folder, or of its ``commitlog`` folder, by offset. Raises CommitLogError.

    A broker with ``enableDLegerCommitLog`` writes its log into the folder ``data`` of DLedger. If it has a commitlog
    from before, DLedger's begins where that ends (DLedgerCommitLog.dividedCommitlogOffset).
    """
    if problem := storage.why_no_folder():
        raise CommitLogError(f"{storage.root} {problem}; give a broker's store folder")
    folder = storage.child("commitlog")
    if not folder.is_folder():
        folder = storage
    dledger = dledger_folders(storage)
    if len(dledger) > 1:
        raise CommitLogError(
            f"{storage.root} has the DLedger commitlogs of several brokers ({', '.join(dledger)}): "
            "give a store with one"
        )
    later = [segment for name in dledger for segment in _segments_in(storage.child(f"{name}/data"))]
    earlier = _segments_in(folder)
    if earlier and later and later[0].offset < earlier[-1].end:
        raise CommitLogError(
            f"{storage.root} has the same part of the log in {folder.root.rpartition('/')[2]} and in {dledger[0]}: "
            "remove the one that the broker does not write any more"
        )
    if not earlier and not later:
        raise CommitLogError(
            f"{folder.root} holds no commit log segment (a file named by its offset, as 00000000000000000000); "
            "give a broker's store folder"
        )
    return earlier + later


def _segments_in(folder: Storage) -> list[Segment]:
    named = [file for file in folder.files() if is_mapped_file(file.base_name) and int(file.base_name) < 2**63]
    return sorted(Segment(int(file.base_name), file.base_name, file.size, folder) for file in named)


def dledger_folders(store: Storage) -> list[str]:
    """The names of the folders in a store where a broker with ``enableDLegerCommitLog`` writes (DLedgerConfig)."""
    return sorted(name for name in store.names() if name.startswith("dledger-"))
