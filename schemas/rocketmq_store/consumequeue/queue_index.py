"""Looks up single entries in the consume queue files of a snapshot, without reading whole files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.rocketmq_store.consumequeue.queue_files import ENTRY, PRE_BLANK
from schemas.storage import Storage

Entries = NDArray[np.void]
"""An array of ENTRY."""
ENTRIES_AT_ONCE = 1 << 12
"""Read at once by a search: an object store takes as long for one entry as for some thousands."""


@dataclass(frozen=True)
class Entry:
    """A consume queue entry as it is on disk."""

    commitlog_offset: int
    size: int
    tags_code: int

    @property
    def is_message(self) -> bool:
        return self.size > 0 and self.commitlog_offset >= 0 and (self.commitlog_offset, self.size) != PRE_BLANK[:2]


class QueueIndex:
    """The entries of a store's queues, by topic and queue id."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: defaultdict[tuple[str, int], list[tuple[int, str, int]]] = defaultdict(list)
        for info in storage.files("consumequeue", recursive=True):
            parts = info.path.split("/")
            if len(parts) == 4 and parts[2].isdecimal() and parts[3].isdecimal() and info.size >= ENTRY.itemsize:
                self._files[parts[1], int(parts[2])].append((int(parts[3]), info.path, info.size))
        for files in self._files.values():
            files.sort()

    @property
    def queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of each queue that has a file."""
        return sorted(self._files)

    def min_offset(self, topic: str, queue_id: int, log_start: int) -> int:
        """The offset of the first entry whose message is still in the log, or else the queue's end."""
        return self._first(
            topic, queue_id, lambda entries: (entries["commitlog_offset"] >= log_start) | (entries["size"] <= 0)
        )

    def end(self, topic: str, queue_id: int) -> int:
        """The offset after the last entry."""
        return self._first(topic, queue_id, lambda entries: entries["size"] <= 0)

    def entry(self, topic: str, queue_id: int, offset: int) -> Entry | None:
        """The entry of the message at a queue offset; None if there is none."""
        for begin, path, size in self._files.get((topic, queue_id), ()):
            position = offset * ENTRY.itemsize - begin
            if 0 <= position <= size - ENTRY.itemsize:
                with self._storage.file_system.open_input_file(path) as file:
                    (values,) = _entries_at(file, position // ENTRY.itemsize, 1)
                entry = Entry(int(values["commitlog_offset"]), int(values["size"]), int(values["tags_code"]))
                return entry if entry.is_message else None
        return None

    def _first(self, topic: str, queue_id: int, is_reached: Callable[[Entries], NDArray[np.bool_]]) -> int:
        """The offset of the first entry that is reached. All entries after it must be, too."""
        files = self._files.get((topic, queue_id), [])
        for begin, path, size in files:
            last = size // ENTRY.itemsize - 1
            with self._storage.file_system.open_input_file(path) as file:
                if is_reached(_entries_at(file, last, 1))[0]:
                    return begin // ENTRY.itemsize + _search(file, last, is_reached)
        return (files[-1][0] + files[-1][2]) // ENTRY.itemsize if files else 0


def _search(file: pa.NativeFile, last: int, is_reached: Callable[[Entries], NDArray[np.bool_]]) -> int:
    """The number of the first entry in a file that is reached. The one numbered ``last`` is."""
    low, high, at = 0, last, 0
    while low < high:
        reached = is_reached(_entries_at(file, at, min(ENTRIES_AT_ONCE, high - at)))
        first = int(np.argmax(reached))
        if not reached[first]:
            low = at + len(reached)
        elif first or at == low:
            return at + first
        else:
            high = at
        at = low if high - low <= ENTRIES_AT_ONCE else (low + high) // 2
    return low


def _entries_at(file: pa.NativeFile, number: int, count: int) -> Entries:
    data = bytes(file.read_at(count * ENTRY.itemsize, number * ENTRY.itemsize))
    return np.frombuffer(data.ljust(count * ENTRY.itemsize, b"\0"), ENTRY)
