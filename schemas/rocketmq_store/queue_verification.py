"""Compares a queue's files on disk, byte for byte, with what the broker should have written for its entries."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from filtering.broker_config import CONSUME_QUEUE_EXT_UNIT
from filtering.delivery.pull_window import NO_END
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.queue_files import (
    ADDRESS_BASE,
    ENTRY,
    STORE_TIMESTAMP,
    STORED_ENTRY,
    TAGS_CODE,
    DatabaseIndex,
    Difference,
    QueueEntries,
    QueueFiles,
    encode_units,
    first_not_zero,
    is_address,
    repeated_units,
)
from schemas.storage import Storage

MAX_DIFFERENCES = 1000
CONSUME_QUEUE, EXTENSION = "consumequeue", "consumequeue_ext"


@dataclass
class QueueVerification:
    """Compares the entries of one queue with its files, and collects the ``differences``.

    Entries may come in any order, and need not be complete. A unit of the extension whose previous one was not compared
    in the same or the last call is compared where its entry on disk says that it is.
    ``log_start``: entries of messages before this physical offset may have been deleted with their file. Without
    ``knows_bit_maps`` the extension's bit maps are not compared. File sizes are in bytes.
    """

    storage: Storage
    topic: str
    queue_id: int
    log_start: int
    file_size: int
    extension_file_size: int
    has_extension: bool = False
    knows_bit_maps: bool = True
    differences: list[Difference] = field(default_factory=list)
    _missing: set[str] = field(default_factory=set)
    """The names of missing files. Each is one difference."""
    _next: int | None = None
    """The queue offset after the entries of the last call."""
    _position: int | None = None
    """Where the unit of the entry at ``_next`` should begin in the extension; None: unknown."""
    last_message: int = -1
    _last_stored: int = -1
    """The physical offset and the store time (ms) of the last message of earlier calls."""
    _end: int | None = None
    """The queue offset after the last entry of the queue."""
    _extension_end: int | None = None
    """Where the unit of the entry at ``_end`` should begin; None: unknown."""

    def __post_init__(self) -> None:
        self._queue = QueueFiles(self.storage, CONSUME_QUEUE, self.topic, self.queue_id, self.file_size)
        self._extension = QueueFiles(self.storage, EXTENSION, self.topic, self.queue_id, self.extension_file_size)
        self.differences += self._queue.sized_differently()
        if self.has_extension:
            self.differences += self._extension.sized_differently()

    def add(self, entries: QueueEntries) -> None:
        """Compares entries."""
        if self._next != entries.first:
            self._position = 0 if entries.first == 0 else None
        self._next = entries.first + len(entries)
        done = 0
        while done < len(entries) and len(self.differences) < MAX_DIFFERENCES:
            position = (entries.first + done) * ENTRY.itemsize
            left_in_file = (self._queue.start(position) + self._queue.file_size - position) // ENTRY.itemsize
            count = max(1, min(len(entries) - done, left_in_file))
            self._compare(entries, done, done + count, self._queue.read(position, count * ENTRY.itemsize))
            done += count
        self.last_message = max(self.last_message, int(entries.commitlog_offset[-1]))
        self._last_stored = max(self._last_stored, int(entries.store_timestamp[-1]))
        if self._end is None or self._next > self._end:
            self._end, self._extension_end = self._next, self._position

    def finish(self) -> int:
        """Checks the bytes after the last entry. Returns the number of newer entries, which cannot be compared."""
        if self._end is None or not self._queue.sizes:
            return 0
        after = self._end * ENTRY.itemsize
        newer = 0
        for position, data in self._queue.rest(after):
            entries = np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
            written = int(np.count_nonzero(entries["size"] > 0))
            newer += written
            if not written and (wrong := first_not_zero(data)) is not None:
                at = position + wrong
                reason = "something other than zeros follows the last entry"
                self._add(self._queue, at, at // ENTRY.itemsize, reason)
        if newer:
            return newer
        if self.has_extension and self._extension_end is not None:
            # A living broker writes a unit before its entry, and its queues are copied before the extension.
            self._extension_end = repeated_units(self._extension, self._extension_end, NO_END)
            self._check_end_of_extension(self._extension_end)
        self._find_superfluous(after)
        return 0

    def _compare(self, entries: QueueEntries, begin: int, end: int, data: bytes | None) -> None:
        """Compares entries of one file; ``data`` are the bytes of the file at their place."""
        if data is None:
            at, last_message = (entries.first + begin) * ENTRY.itemsize, int(entries.commitlog_offset[begin:end].max())
            self._note_missing(self._queue, at, last_message)
            self._position = None
            return
        on_disk = np.frombuffer(data.ljust((end - begin) * ENTRY.itemsize, b"\0"), ENTRY)
        codes = self._tags_codes(entries, begin, end, on_disk["tags_code"].astype(np.int64))
        differs = on_disk["commitlog_offset"] != entries.commitlog_offset[begin:end]
        differs |= on_disk["size"] != entries.size[begin:end]
        differs |= on_disk["tags_code"] != codes
        for at in np.flatnonzero(differs).tolist():
            self._note_entry(entries, begin + at, on_disk[at], int(codes[at]))

    def _tags_codes(self, entries: QueueEntries, begin: int, end: int, on_disk: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tags codes that the entries should hold. Compares their units in the extension, too."""
        if not (self.has_extension and entries.have_units):
            return entries.tags_code[begin:end]
        if not self.knows_bit_maps:
            self._position = None
            return self._known_parts(entries, begin, end, on_disk)
        codes, position = self._units(entries, begin, end, on_disk, note=end - begin == 1)
        if position is not None or end - begin == 1:
            self._position = position
            return codes
        return np.concatenate(
            [self._tags_codes(entries, at, at + 1, on_disk[at - begin : at - begin + 1]) for at in range(begin, end)]
        )

    def _units(
        self, entries: QueueEntries, begin: int, end: int, on_disk: NDArray[np.int64], note: bool
    ) -> tuple[NDArray[np.int64], int | None]:
        """The tags codes, and where the next unit begins; None if something differs and is not yet noted."""
        files = self._extension
        position = self._position
        if position is None:
            position = int(on_disk[0]) - ADDRESS_BASE if is_address(on_disk[:1])[0] else 0
        elif note:
            latest = int(entries.store_timestamp[begin - 1]) if begin else self._last_stored
            address = int(on_disk[0]) - ADDRESS_BASE
            position = address if position < address == repeated_units(files, position, latest, address) else position
        part = slice(begin, end)
        maps = entries.bit_maps.slice(begin, end - begin)
        codes, octets = encode_units(
            entries.tags_code[part], entries.store_timestamp[part], maps, files.file_size, position
        )
        if (codes == on_disk).all() and files.read_span(position, len(octets)) == octets.tobytes():
            return codes, position + len(octets)
        if not note:
            return codes, None
        return codes, self._note_unit(entries, begin, int(codes[0]), int(on_disk[0]), octets.tobytes(), position)

    def _note_unit(
        self, entries: QueueEntries, index: int, code: int, on_disk: int, octets: bytes, position: int
    ) -> int:
        """Notes the faults of one unit on disk. Returns where the next one begins."""
        files, queue_offset = self._extension, entries.first + index
        at = (on_disk if is_address([on_disk])[0] else code) - ADDRESS_BASE
        filler, unit = octets[: code - ADDRESS_BASE - position], octets[code - ADDRESS_BASE - position :]
        if filler and (data := files.read(position, len(filler))) is not None and data != filler:
            wrong = next(i for i, byte in enumerate(filler) if data[i : i + 1] != bytes([byte]))
            self._note_what_follows(position + wrong, queue_offset - 1)
        data = files.read(at, len(unit)) if unit else b""
        if data is None:
            self._note_missing(files, at, int(entries.commitlog_offset[index]))
        elif data != unit:
            self._add(files, at, queue_offset, f"unit is {data.hex()}, should be {unit.hex()}")
        return at + len(unit)

    def _known_parts(
        self, entries: QueueEntries, begin: int, end: int, on_disk: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The tags codes if bit maps are unknown. Of units in the extension, only codes and times are compared."""
        has_unit = is_address(on_disk)
        at = np.flatnonzero(has_unit) + begin
        positions = on_disk[has_unit] - ADDRESS_BASE
        files = positions // self._extension.file_size
        for file in np.unique(files).tolist():
            self._compare_known_parts(entries, at[files == file], positions[files == file])
        return np.where(has_unit, on_disk, entries.tags_code[begin:end])

    def _compare_known_parts(self, entries: QueueEntries, at: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """Compares the codes and times of units in one file of the extension: those of the entries numbered ``at``."""
        start = int(positions.min())
        data = self._extension.read_span(start, int(positions.max()) + CONSUME_QUEUE_EXT_UNIT - start)
        if data is None:
            self._note_missing(self._extension, start, int(entries.commitlog_offset[at].max()))
            return
        octets = np.frombuffer(data, np.uint8)
        codes, times = (
            record_layout.longs(octets, positions - start + field) for field in (TAGS_CODE, STORE_TIMESTAMP)
        )
        differs = (codes != entries.tags_code[at]) | (times != entries.store_timestamp[at])
        for i in np.flatnonzero(differs).tolist():
            should = f"{entries.tags_code[at[i]]} and {entries.store_timestamp[at[i]]}"
            reason = f"unit has tags code {codes[i]} and time {times[i]}, should have {should}"
            self._add(self._extension, int(positions[i]), entries.first + int(at[i]), reason)

    def _check_end_of_extension(self, position: int) -> None:
        """Checks that only zeros follow the last unit."""
        for at, data in self._extension.rest(position):
            if (wrong := first_not_zero(data)) is not None:
                self._note_what_follows(at + wrong, (self._end or 0) - 1)
                return

    def _note_what_follows(self, position: int, queue_offset: int) -> None:
        within = position - self._extension.start(position)
        reason = f"what follows the unit has a byte other than the broker's at position {within}"
        self._add(self._extension, position, queue_offset, reason)

    def _note_entry(self, entries: QueueEntries, at: int, on_disk: np.void, tags_code: int) -> None:
        queue_offset = entries.first + at
        expected = (int(entries.commitlog_offset[at]), int(entries.size[at]), tags_code)
        reasons = [
            f"{name} is {on_disk[name]}, should be {value}"
            for name, value in zip(ENTRY.names or (), expected, strict=True)
            if on_disk[name] != value
        ]
        self._add(self._queue, queue_offset * ENTRY.itemsize, queue_offset, "; ".join(reasons))

    def _note_missing(self, files: QueueFiles, position: int, last_message: int) -> None:
        """Notes that the file with the entries of some messages is missing, unless the broker deleted them all."""
        name = files.name(position)
        if last_message >= self.log_start and name not in self._missing:
            self._missing.add(name)
            self._add(files, position, None, "the file is missing")

    def _find_superfluous(self, after: int) -> None:
        """Notes the files that begin after the last entry."""
        ends = ((self._queue, after), (self._extension, self._extension_end))
        for files, end in ends:
            for start in sorted(files.sizes) if end is not None else ():
                if start >= (end or 0) and start > 0:
                    self._add(files, start, None, "the broker would not have this file")

    def _add(self, files: QueueFiles, position: int, queue_offset: int | None, reason: str) -> None:
        self.differences.append(Difference(files.name(position), queue_offset, reason))


@dataclass
class DatabaseVerification:
    """Compares the entries of one queue with those in the broker's database, as :class:`QueueVerification`.

    ``log_start``: entries of messages before this physical offset may have been deleted.
    """

    database: DatabaseIndex
    topic: str
    queue_id: int
    log_start: int
    differences: list[Difference] = field(default_factory=list)
    last_message: int = -1
    _end: int = 0

    def add(self, entries: QueueEntries) -> None:
        """Compares entries."""
        self.last_message = max(self.last_message, int(entries.commitlog_offset[-1]))
        self._end = max(self._end, entries.first + len(entries))
        if len(self.differences) >= MAX_DIFFERENCES:
            return
        offsets, stored = self.database.entries(self.topic, self.queue_id, entries.first, len(entries))
        at = offsets - entries.first
        is_missing = np.ones(len(entries), np.bool_)
        is_missing[at] = False
        for missing in np.flatnonzero(is_missing & (entries.commitlog_offset >= self.log_start)).tolist():
            self._add(entries.first + missing, "the entry is missing")
        expected = {name: getattr(entries, name)[at] for name in STORED_ENTRY.names or ()}
        differs = np.any([stored[name] != values for name, values in expected.items()], axis=0)
        for i in np.flatnonzero(differs).tolist():
            reasons = [
                f"{name} is {stored[name][i]}, should be {values[i]}"
                for name, values in expected.items()
                if stored[name][i] != values[i]
            ]
            self._add(int(offsets[i]), "; ".join(reasons))

    def finish(self) -> int:
        """Returns the number of newer entries, which cannot be compared."""
        return max(0, self.database.end(self.topic, self.queue_id) - self._end)

    def _add(self, queue_offset: int, reason: str) -> None:
        self.differences.append(Difference(self.database.folder, queue_offset, reason))
