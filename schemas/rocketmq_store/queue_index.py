"""Looks up single entries in the consume queue files of a snapshot, without reading whole files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from schemas.rocketmq_store.consume_queue import ENTRY, PRE_BLANK
from schemas.storage import Storage


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
        return self._first(topic, queue_id, lambda entry: entry.commitlog_offset >= log_start or entry.size <= 0)

    def end(self, topic: str, queue_id: int) -> int:
        """The offset after the last entry."""
        return self._first(topic, queue_id, lambda entry: entry.size <= 0)

    def entry(self, topic: str, queue_id: int, offset: int) -> Entry | None:
        """The entry of the message at a queue offset; None if there is none."""
        for begin, path, size in self._files.get((topic, queue_id), ()):
            position = offset * ENTRY.itemsize - begin
            if 0 <= position <= size - ENTRY.itemsize:
                with self._storage.file_system.open_input_file(path) as file:
                    entry = _entry_at(file, position)
                return entry if entry.is_message else None
        return None

    def _first(self, topic: str, queue_id: int, is_reached: Callable[[Entry], bool]) -> int:
        """The offset of the first entry that is reached. All entries after it must be, too."""
        files = self._files.get((topic, queue_id), [])
        for begin, path, size in files:
            entries = size // ENTRY.itemsize
            with self._storage.file_system.open_input_file(path) as file:
                if not is_reached(_entry_at(file, (entries - 1) * ENTRY.itemsize)):
                    continue
                low, high = 0, entries - 1
                while low < high:
                    middle = (low + high) // 2
                    if is_reached(_entry_at(file, middle * ENTRY.itemsize)):
                        high = middle
                    else:
                        low = middle + 1
                return begin // ENTRY.itemsize + low
        return (files[-1][0] + files[-1][2]) // ENTRY.itemsize if files else 0


def _entry_at(file: pa.NativeFile, position: int) -> Entry:
    data = bytes(file.read_at(ENTRY.itemsize, position)).ljust(ENTRY.itemsize, b"\0")
    values = np.frombuffer(data, ENTRY)[0]
    return Entry(int(values["commitlog_offset"]), int(values["size"]), int(values["tags_code"]))
