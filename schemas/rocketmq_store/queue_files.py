"""The files of consume queues (RocketMQ ConsumeQueue), and single entries in them or in a database.

A consume queue file has 20 bytes for each entry. A file has a fixed size and is named by its offset in the queue, in
bytes. Bytes not yet written are zero. QueueFiles reads and compares them as one sequence of bytes.

QueueIndex looks up single entries in these files, and DatabaseIndex in the broker's RocksDB database
(:func:`queue_index`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from filtering.broker_config import CONSUME_QUEUE_EXT_UNIT
from filtering.frozen import frozen
from filtering.java import INT_MAX
from filtering.kernels.compile import compiled
from schemas.errors import UsageError
from schemas.rocketmq_store.rocksdb import Database, DatabaseError, has_database, listing
from schemas.rocketmq_store.segments import is_mapped_file
from schemas.storage import Storage

ENTRY = np.dtype([("commitlog_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK = (0, 2**31 - 1, 0)
"""The entry that the broker writes before the first entry of a queue that does not begin at 0."""
BYTES_AT_ONCE = ENTRY.itemsize << 16
LONGEST_NAME = 255
"""Bytes of the longest name of a folder. A topic with a longer name has no files."""


@frozen(eq=False)
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


@frozen
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
        files = storage.files(self._folder) if can_exist else []
        self.sizes = {int(info.base_name): info.size for info in files if is_mapped_file(info.base_name)}
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


# Single entries.


Entries = NDArray[np.void]
"""An array of ENTRY."""
ENTRIES_AT_ONCE = 1 << 12
"""Read at once by a search: an object store takes as long for one entry as for some thousands."""
QUEUE_DATABASES = ("consumequeue", "consumequeue_rocksdb")
"""Where a broker with ``storeType=defaultRocksDB`` keeps its consume queues; the second of 5.5, with
``useSeparateStorePathForRocksdbCQ``. The files of a broker that also writes these are in the first, too."""
OFFSET_FAMILY = "offset"
STORED_ENTRY = np.dtype([*((name, ENTRY[name]) for name in ENTRY.names or ()), ("store_timestamp", ">i8")])
"""A value of the database (RocksDBConsumeQueueTable)."""
MOST_LAG = 60_000
"""ms: the files of a broker that also writes the database end with the same message, as far as a copy shows it."""


@frozen
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
            is_queue = len(parts) > 3 and parts[-2].isdecimal() and int(parts[-2]) <= INT_MAX
            if is_queue and parts[-1].isdecimal() and info.size >= ENTRY.itemsize:
                topic = "/".join(parts[1:-2])  # the name of an LMQ may have slashes
                self._files[topic, int(parts[-2])].append((int(parts[-1]), info.path, info.size))
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


class DatabaseIndex:
    """The entries of a store's queues in its database, as :class:`QueueIndex`. Raises DatabaseError.

    Keys: the length of the topic (4 bytes), 1, the topic, 1, the queue id (4), 1, the queue offset (8). In the column
    family of offsets, "max" or "min" stands before the queue id, which ends the key. Source: RocksDBConsumeQueueTable,
    RocksDBConsumeQueueOffsetTable.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self.folder = folder
        self._database = Database(storage, folder)
        self._bounds: dict[bytes, dict[tuple[str, int], int]] = {b"max": {}, b"min": {}}
        self.newest: tuple[int, str, int] = (-1, "", 0)
        """The physical offset, the topic and the queue id of the last message that has an entry."""
        for key, value in self._database.items(OFFSET_FAMILY):
            if len(value) == 16:  # that of the broker's own CHECKPOINT_TOPIC has 8 bytes
                topic, queue_id = key[5:-9].decode("utf-8", "replace"), int.from_bytes(key[-4:], "big")
                self._bounds[key[-8:-5]][topic, queue_id] = int.from_bytes(value[8:], "big", signed=True)
                if key[-8:-5] == b"max":
                    self.newest = max(self.newest, (int.from_bytes(value[:8], "big", signed=True), topic, queue_id))

    @property
    def queues(self) -> list[tuple[str, int]]:
        return sorted(self._bounds[b"max"])

    def min_offset(self, topic: str, queue_id: int, log_start: int) -> int:
        def is_in_log(offset: int) -> bool:
            stored = self.stored(topic, queue_id, offset)
            return stored is not None and int(stored["commitlog_offset"]) >= log_start

        least = max(0, self._bounds[b"min"].get((topic, queue_id), 0))
        return least + bisect_left(range(least, self.end(topic, queue_id)), True, key=is_in_log)

    def end(self, topic: str, queue_id: int) -> int:
        return self._bounds[b"max"].get((topic, queue_id), -1) + 1

    def entry(self, topic: str, queue_id: int, offset: int) -> Entry | None:
        values = self.stored(topic, queue_id, offset) if 0 <= offset < self.end(topic, queue_id) else None
        if values is None:
            return None
        return Entry(int(values["commitlog_offset"]), int(values["size"]), int(values["tags_code"]))

    def stored(self, topic: str, queue_id: int, offset: int) -> np.void | None:
        """The STORED_ENTRY at a queue offset; None if there is none."""
        value = self._database.get(_queue_key(topic, queue_id) + offset.to_bytes(8, "big"))
        return None if value is None or len(value) != STORED_ENTRY.itemsize else np.frombuffer(value, STORED_ENTRY)[0]

    def entries(self, topic: str, queue_id: int, first: int, count: int) -> tuple[NDArray[np.int64], Entries]:
        """The queue offsets and the STORED_ENTRY of those of ``count`` entries from ``first`` on that there are."""
        prefix, offsets, values = _queue_key(topic, queue_id), [], []
        for key, value in self._database.items(prefix=prefix, rest=first.to_bytes(8, "big")):
            offset = int.from_bytes(key[len(prefix) :], "big")
            if offset >= first + count:
                break
            if len(value) == STORED_ENTRY.itemsize:
                offsets.append(offset)
                values.append(value)
        return np.array(offsets, np.int64), np.frombuffer(b"".join(values), STORED_ENTRY)


def queue_index(storage: Storage) -> QueueIndex | DatabaseIndex:
    """The queues that the broker reads; those in files, if there are any, where its database cannot be read."""
    try:
        return database_index(storage) or QueueIndex(storage)
    except DatabaseError:
        return QueueIndex(storage)


def reads_database(storage: Storage) -> bool:
    """Whether the broker reads its consume queues in a database, which has no filter bit maps."""
    try:
        return database_index(storage) is not None
    except DatabaseError:
        return True


def database_index(storage: Storage) -> DatabaseIndex | None:
    """The database of consume queues if the broker reads it; None if it reads files. Raises DatabaseError.

    A broker that writes files besides the database reads the files (``rocksdbCQDoubleWriteEnable``). One that was moved
    into the database leaves its files, which then end earlier.
    """
    folders = [folder for folder in QUEUE_DATABASES if has_database(storage, folder)]
    if not folders:
        return None
    return _read_index(storage, tuple(folders), tuple(listing(storage, folder) for folder in QUEUE_DATABASES))


@lru_cache(maxsize=1)
def _read_index(storage: Storage, folders: Sequence[str], state: Sequence[object]) -> DatabaseIndex | None:
    """``state``: the files, which decide how long the answer holds. A night asks for it several times."""
    files = QueueIndex(storage)
    try:
        database = max((DatabaseIndex(storage, folder) for folder in folders), key=lambda index: index.newest)
    except DatabaseError:
        if files.queues:
            return None
        raise
    return database if not files.queues or _is_ahead(database, files) else None


def _is_ahead(database: DatabaseIndex, files: QueueIndex) -> bool:
    """Whether the database has messages that were stored after all those in files."""
    ends = {queue: files.end(*queue) for queue in files.queues}
    stored = [database.stored(*queue, end - 1) for queue, end in ends.items() if end]
    latest = max((int(row["store_timestamp"]) for row in stored if row is not None), default=0)
    _, topic, queue_id = database.newest
    newest = database.stored(topic, queue_id, database.end(topic, queue_id) - 1)
    return newest is not None and int(newest["store_timestamp"]) > latest + MOST_LAG


def _queue_key(topic: str, queue_id: int) -> bytes:
    name = topic.encode("utf-8", "surrogatepass")
    return len(name).to_bytes(4, "big") + b"\1" + name + b"\1" + queue_id.to_bytes(4, "big") + b"\1"


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


# Consume queue extension files: tags code, store time and filter bit map of an entry (RocketMQ ConsumeQueueExt).
#
# A unit: size i16, tagsCode i64, msgStoreTime i64, bitMapSize i16, bit map. It never crosses the end of a file and
# leaves at least 4 bytes there. If a unit does not fit, a short -1 ends the file and the unit begins the next file. The
# tags code of an entry is then the unit's address.


END_BLANK_BYTES = 4
MAX_UNIT_BYTES = 2**15 - 1
ADDRESS_BASE = -(2**63)
MAX_ADDRESS = -(2**31) - 1
UNIT = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bit_map_size", ">i2")])
TAGS_CODE, STORE_TIMESTAMP = 2, 10
"""Where these fields are, in bytes from the start of a unit."""
FULL = b"\xff\xff"
"""What follows the last unit of a file: a short -1."""


class ExtensionError(UsageError):
    """A unit is too long for the files of the extension."""


def has_extension(store: Storage) -> bool:
    """Whether a store folder has a consume queue extension that is not empty, because bit maps were on."""
    return any(file.size > 0 for file in store.files("consumequeue_ext", recursive=True))


def is_address(tags_codes: ArrayLike) -> NDArray[np.bool_]:
    """Whether each tags code of consume queue entries is the address of a unit instead."""
    return np.asarray(tags_codes) <= MAX_ADDRESS


def encode_units(
    tags_codes: ArrayLike,
    store_timestamps: ArrayLike,
    filter_bit_maps: pa.BinaryArray,
    file_size: int,
    position: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """One unit for each entry of a queue, in order: the tags codes of the entries, and the bytes of the units.

    The bytes begin at ``position`` of the queue's extension, where the previous unit ended, and end with the last unit.
    ``store_timestamps`` are ms, ``filter_bit_maps`` may be null, ``file_size`` is mappedFileSizeConsumeQueueExt.
    An entry whose bit map is too long for a unit keeps its tags code. Raises ExtensionError if a unit is too long for
    a file.
    """
    codes = np.asarray(tags_codes, np.int64)
    bit_maps = filter_bit_maps.fill_null(b"")
    lengths = pc.binary_length(bit_maps).to_numpy().astype(np.int64)
    kept = CONSUME_QUEUE_EXT_UNIT + lengths <= MAX_UNIT_BYTES
    if not kept.all():
        bit_maps, lengths = bit_maps.filter(pa.array(kept)), lengths[kept]
    sizes = CONSUME_QUEUE_EXT_UNIT + lengths
    if len(sizes) and sizes.max() > file_size - END_BLANK_BYTES:
        raise ExtensionError(
            f"a unit of {sizes.max()} bytes does not fit in a file of {file_size}: give --broker-config with a larger "
            "mappedFileSizeConsumeQueueExt"
        )
    positions = _place(sizes, file_size, position)
    units = np.zeros(len(sizes), UNIT)
    units["size"], units["tags_code"], units["bit_map_size"] = sizes, codes[kept], lengths
    units["store_timestamp"] = np.asarray(store_timestamps, np.int64)[kept]
    codes = codes.copy()
    codes[kept] = positions + ADDRESS_BASE
    return codes, _written(units, bit_maps, positions, position, file_size)


def _written(
    units: NDArray[np.void], bit_maps: pa.BinaryArray, positions: NDArray[np.int64], position: int, file_size: int
) -> NDArray[np.uint8]:
    """The bytes from ``position`` on: each unit and its bit map at its place, and the ends of files between them."""
    starts, lengths = positions - position, units["bit_map_size"].astype(np.int64)
    ends = starts + units["size"]
    octets = np.zeros(int(ends.max(initial=0)), np.uint8)
    octets[starts[:, None] + np.arange(UNIT.itemsize)] = units.view(np.uint8).reshape(-1, UNIT.itemsize)
    before = np.cumsum(lengths) - lengths
    bits = np.frombuffer(b"".join(bit_maps.to_pylist()), np.uint8)
    octets[np.repeat(starts + CONSUME_QUEUE_EXT_UNIT - before, lengths) + np.arange(len(bits))] = bits
    previous_ends = np.append(0, ends[:-1])
    in_a_file = (previous_ends + position) % file_size != 0
    filled_up = previous_ends[(previous_ends != starts) & in_a_file]
    octets[filled_up[:, None] + np.arange(2)] = 0xFF
    return octets


@compiled
def _place(sizes: NDArray[np.int64], file_size: int, at: int) -> NDArray[np.int64]:
    """Where each unit begins, in bytes from the first file on, the first not before ``at`` (ConsumeQueueExt.put)."""
    positions = np.empty(len(sizes), np.int64)
    for i in range(len(sizes)):
        space = file_size - at % file_size
        if sizes[i] > space - END_BLANK_BYTES:
            at += space
        positions[i] = at
        at += sizes[i]
    return positions


def repeated_units(files: QueueFiles, position: int, latest: int, end: int | None = None) -> int:
    """Where the units end that begin at ``position`` and are not newer than ``latest`` (ms); at most ``end``.

    A broker that was killed dispatches its last messages again when it starts: their entries stay as they are, but
    their units follow once more (ConsumeQueue.putMessagePositionInfoWrapper).
    """
    while position != end:
        data = files.read(position, files.start(position) + files.file_size - position) or b""
        at = _units_end(data, latest, None if end is None else end - position)
        position += at
        if position == end or data[at : at + 2] != FULL:
            break
        position = files.start(position) + files.file_size
    return position


def _units_end(data: bytes, latest: int, end: int | None) -> int:
    at = 0
    while at != end and (size := int.from_bytes(data[at : at + 2], "big", signed=True)) >= CONSUME_QUEUE_EXT_UNIT:
        if int.from_bytes(data[at + STORE_TIMESTAMP : at + STORE_TIMESTAMP + 8], "big") > latest:
            break
        at += size
    return at
