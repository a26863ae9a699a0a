"""Compares the consume queues of a store, in files or in RocksDB, with the entries in a warehouse."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from answers.facts import BrokerFacts
from filtering.broker_config import CONSUME_QUEUE_EXT_UNIT, CONSUME_QUEUE_UNIT, BrokerConfig
from filtering.delivery.entries import MultiDispatch
from filtering.delivery.pull_window import NO_END
from filtering.frozen import frozen
from filtering.names import is_lmq
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import row_groups, sorted_by
from schemas.errors import UsageError
from schemas.messages.stored_messages import WHOLE_LOG, multi_dispatched
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.config_files import read_topics
from schemas.rocketmq_store.queue_files import (
    ADDRESS_BASE,
    ENTRY,
    QUEUE_DATABASES,
    STORE_TIMESTAMP,
    STORED_ENTRY,
    TAGS_CODE,
    DatabaseIndex,
    Difference,
    QueueEntries,
    QueueFiles,
    QueueIndex,
    database_index,
    encode_units,
    first_not_zero,
    has_extension,
    is_address,
    repeated_units,
)
from schemas.rocketmq_store.segments import Segment, is_mapped_file, segments
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE

KINDS = CONSUME_QUEUE, EXTENSION = "consumequeue", "consumequeue_ext"
_COLUMNS = (
    "topic", "queue_id", "queue_offset", "commitlog_offset", "size", "tags_code", "store_timestamp", "filter_bit_map",
)  # fmt: skip
Queue = tuple[str, int]


@frozen
class Verification:
    """``differences`` by queue. ``newer``: entries on disk of messages that the warehouse does not have yet.

    Without ``knows_bit_maps`` the history of subscriptions is incomplete, and bit maps were not compared.
    ``database``: the folder of the RocksDB database whose entries were compared; None: files were.
    """

    differences: list[tuple[Queue, Difference]]
    newer: int
    knows_bit_maps: bool
    database: str | None = None


def verify(facts: BrokerFacts, store: Storage, broker: BrokerConfig | None) -> Verification:
    """Compares all files of all queues. One row group of entries is in memory at a time.

    ``broker``: the configuration with the file sizes; None: the sizes are those on disk.
    Raises UsageError for a replay, and if the store's log ends before the last message of the warehouse; DatabaseError
    if the broker reads its queues in a database, and that cannot be read.
    """
    facts.check_has_messages()
    log = segments(store)
    _check_log(facts, store, log)
    queues = _Queues(facts, store, log[0].offset, broker)
    for topic, queue_id, entries in chain(_entries(facts), _dispatched_entries(facts, queues)):
        queues.add(topic, queue_id, entries)
    return queues.finish()


def _check_log(facts: BrokerFacts, store: Storage, log: Sequence[Segment]) -> None:
    last = max((file.greatest["commitlog_offset"] for file in facts.warehouse.files(COMMITLOG, facts.name)), default=-1)
    end = max(segment.data_end for segment in log[-2:])
    if end <= last:
        raise UsageError(
            f"the log of {store.root} ends at offset {end:,}, before the last message of {facts.name} in the warehouse "
            f"at {last:,}: give a newer copy of that broker's store, or run nightly if the broker cut its log"
        )


def _entries(facts: BrokerFacts) -> Iterator[tuple[str, int, QueueEntries]]:
    """The entries of the warehouse in runs of one queue with consecutive offsets.

    The runs of a queue may be out of order: entries of recovered records come late, and files of one night overlap. If
    the broker deleted a queue and created it again, the new one's entries have the same queue offsets and come later.
    """
    files = facts.warehouse.files(CONSUMEQUEUE, facts.name)
    folder = facts.warehouse.log(CONSUMEQUEUE).storage
    for stored in sorted(files, key=lambda file: file.least["commitlog_offset"]):
        for rows in row_groups(CONSUMEQUEUE, folder, stored.path, _COLUMNS):
            yield from _runs(rows)


def _runs(rows: pa.Table) -> Iterator[tuple[str, int, QueueEntries]]:
    rows = sorted_by(rows, "topic", "queue_id", "commitlog_offset")
    topics = rows["topic"].combine_chunks().dictionary_encode()
    codes, queue_ids = topics.indices.to_numpy(), rows["queue_id"].to_numpy()
    offsets, commitlog_offsets, sizes, tags_codes, times = (rows[name].to_numpy() for name in _COLUMNS[2:7])
    bit_maps = rows["filter_bit_map"].combine_chunks()
    breaks = (np.diff(codes) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)
    starts = np.append(0, np.flatnonzero(breaks) + 1) if len(offsets) else np.empty(0, np.int64)
    for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(offsets)], strict=True):
        part = slice(begin, end)
        topic = topics.dictionary[int(codes[begin])].as_py()
        yield (
            topic,
            int(queue_ids[begin]),
            QueueEntries(
                int(offsets[begin]), commitlog_offsets[part], sizes[part], tags_codes[part], times[part],
                bit_maps.slice(begin, end - begin), have_units=not is_lmq(topic),
            ),
        )  # fmt: skip


def _dispatched_entries(facts: BrokerFacts, queues: _Queues) -> Iterator[tuple[str, int, QueueEntries]]:
    """The entries of messages in queues of other topics that are no LMQs, in runs as :func:`_entries`.

    No table has them.
    """
    storage, files = facts.warehouse.log(COMMITLOG).storage, facts.warehouse.files(COMMITLOG, facts.name)
    dispatched = multi_dispatched(storage, [file.path for file in files], WHOLE_LOG, (), facts.broker)
    if dispatched is None:
        return
    dispatch = MultiDispatch(facts.broker.version, queues.in_files, on_disk=queues.on_disk)
    messages, codes = dispatched.messages, dispatched.tags_code
    rows_by_queue: defaultdict[Queue, list[tuple[int, ...]]] = defaultdict(list)
    for at, name, queue, offset in dispatched.entries(dispatch):
        if not is_lmq(name):
            numbers = messages.commitlog_offset[at], messages.store_size[at], messages.store_timestamp[at]
            rows_by_queue[name, queue].append((offset, *numbers, codes[at]))
    for (topic, queue_id), rows in rows_by_queue.items():
        table = np.array(rows, np.int64)
        breaks = np.flatnonzero(np.diff(table[:, 0]) != 1) + 1
        for run in np.split(table, breaks):
            offsets, places, sizes, times, codes = run.T
            nulls = pa.nulls(len(run), pa.binary())
            entries = QueueEntries(int(offsets[0]), places, sizes.astype(np.int32), codes, times, nulls, False)
            yield topic, queue_id, entries


class _Queues:
    """The comparison of each queue that the warehouse knows, and of the queues that only the store has."""

    def __init__(self, facts: BrokerFacts, store: Storage, log_start: int, broker: BrokerConfig | None) -> None:
        self._store = store
        self._file_sizes = _file_sizes(store, facts.broker if broker is None else broker, is_given=broker is not None)
        self._log_start = log_start
        self._has_extension = facts.broker.enable_consume_queue_ext or has_extension(store)
        self._switched = _switched_extension(facts)
        self._knows_bit_maps = not (facts.history_is_incomplete or facts.was_recorded_late)
        self._database = database_index(store)
        self._index = self._database or QueueIndex(store)
        self._topics = read_topics(store)
        self._read_to = facts.last.ingested_to or 0
        self._known: dict[Queue, QueueVerification | DatabaseVerification] = {}

    def add(self, topic: str, queue_id: int, entries: QueueEntries) -> None:
        """Compares entries of one queue, in parts between the places where the extension was switched on or off.

        If the broker deleted the queue and created it again for these entries, only they count.
        """
        queue = self._known.get((topic, queue_id))
        if queue is None or (entries.first == 0 and entries.commitlog_offset[0] > queue.last_message):
            queue = self._known[topic, queue_id] = self._verification(topic, queue_id)
        cuts = np.searchsorted(entries.commitlog_offset, [offset for offset, _ in self._switched]).tolist()
        for (_, is_on), begin, end in zip(self._switched, cuts, [*cuts[1:], len(entries)], strict=True):
            if begin < end:
                queue.add(entries.part(begin, end, have_units=is_on and entries.have_units))

    @property
    def in_files(self) -> bool:
        """Whether the queues are files, not a database."""
        return self._database is None

    @property
    def on_disk(self) -> set[Queue]:
        """The queues that the store has."""
        return self._on_disk[CONSUME_QUEUE]

    def _verification(self, topic: str, queue_id: int) -> QueueVerification | DatabaseVerification:
        if self._database is not None:
            return DatabaseVerification(self._database, topic, queue_id, self._log_start)
        return QueueVerification(
            self._store, topic, queue_id, self._log_start, *self._file_sizes, self._has_extension, self._knows_bit_maps
        )

    def finish(self) -> Verification:
        on_disk = self._on_disk
        deleted = {key for key in self._known.keys() - set().union(*on_disk.values()) if self._topic_is_deleted(key[0])}
        known = {key: queue for key, queue in self._known.items() if key not in deleted}
        newer = sum(queue.finish() for queue in known.values())
        differences = [(key, difference) for key, queue in known.items() for difference in queue.differences]
        unknown = {kind: on_disk[kind] - self._known.keys() for kind in KINDS}
        newer_queues = {key: count for key in unknown[CONSUME_QUEUE] if (count := self._newer_entries(*key))}
        newer += sum(newer_queues.values())
        for kind, keys in unknown.items():
            for key in keys - newer_queues.keys():
                if not self._is_deleted(*key):
                    differences.append((key, Difference(kind, None, "no message of the log belongs to this queue")))
        differences.sort(key=_order)
        if self._database is not None:
            return Verification(differences, newer, True, self._database.folder)
        return Verification(differences, newer, self._knows_bit_maps)

    def _topic_is_deleted(self, topic: str) -> bool:
        """Whether the broker deleted a topic, and with it the files of its queues. The messages stay in the log."""
        return bool(self._topics) and topic not in self._topics

    def _newer_entries(self, topic: str, queue_id: int) -> int:
        """The number of entries in a queue whose messages no night has read yet."""
        first = self._index.min_offset(topic, queue_id, self._read_to)
        entry = self._index.entry(topic, queue_id, first)
        return self._index.end(topic, queue_id) - first if entry is not None else 0

    def _is_deleted(self, topic: str, queue_id: int) -> bool:
        """Whether the broker deleted the messages of all entries in a queue. It deletes their files later."""
        last = self._index.entry(topic, queue_id, self._index.end(topic, queue_id) - 1)
        return last is not None and last.commitlog_offset < self._log_start

    @cached_property
    def _on_disk(self) -> dict[str, set[Queue]]:
        return {kind: self._queues_of(kind) for kind in KINDS}

    def _queues_of(self, kind: str) -> set[Queue]:
        if self._database is not None:
            return set() if kind == EXTENSION else set(self._database.queues)
        parts = (info.path.split("/") for info in self._store.files(kind, recursive=True))
        return {("/".join(part[1:-2]), int(part[-2])) for part in parts if len(part) > 3 and part[-2].isdecimal()}


def _switched_extension(facts: BrokerFacts) -> Sequence[tuple[int, bool]]:
    """The physical offsets from which on the extension was on or off, in order; the first is 0.

    Without a change it counts as on: it may be there although no configuration said so.
    """
    is_on = [night.broker.enable_consume_queue_ext for night in facts.nights]
    if len(set(is_on)) < 2:
        return [(0, True)]
    begins = [0, *(night.ingested_to or 0 for night in facts.nights)]
    return list(zip(begins, is_on, strict=False))


def _file_sizes(store: Storage, broker: BrokerConfig, is_given: bool) -> tuple[int, int]:
    """The file sizes of the two kinds in bytes: as configured if ``is_given``, else the commonest on disk.

    Empty files do not count: a broker preallocates its files.
    """
    configured = (broker.consume_queue_file_entries * CONSUME_QUEUE_UNIT, broker.mapped_file_size_consume_queue_ext)
    if is_given:
        return configured
    files = ([file for file in store.files(kind, recursive=True) if is_mapped_file(file.base_name)] for kind in KINDS)
    sizes = (Counter(file.size for file in files_of_kind if file.size) for files_of_kind in files)
    on_disk = (size.most_common(1) for size in sizes)
    queue, extension = (stored[0][0] if stored else size for stored, size in zip(on_disk, configured, strict=True))
    return queue, extension


def check_store(store: Storage) -> None:
    """Raises UsageError if a folder has no consume queue."""
    if problem := store.why_no_folder():
        raise UsageError(f"{store.root} {problem}; give a broker's whole store folder")
    if not any(store.files(folder, recursive=True) for folder in (CONSUME_QUEUE, *QUEUE_DATABASES)):
        raise UsageError(f"{store.root} has no consumequeue folder; give a broker's whole store folder")


def _order(pair: tuple[tuple[str, int], Difference]) -> tuple[tuple[str, int], str, int]:
    queue, difference = pair
    return queue, difference.file, -1 if difference.queue_offset is None else difference.queue_offset


# One queue on disk, byte for byte, beside what the broker should have written for its entries.


MAX_DIFFERENCES = 1000


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
