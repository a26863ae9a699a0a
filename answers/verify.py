"""Compares the consume queues of a store, in files or in RocksDB, with the entries in a warehouse."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from answers.facts import BrokerFacts
from filtering.broker_config import CONSUME_QUEUE_UNIT, BrokerConfig
from filtering.delivery.entries import MultiDispatch
from filtering.frozen import frozen
from filtering.names import is_lmq
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import row_groups, sorted_by
from schemas.errors import UsageError
from schemas.messages.stored_messages import WHOLE_LOG, multi_dispatched
from schemas.rocketmq_store.config_files import read_topics
from schemas.rocketmq_store.queue_files import (
    QUEUE_DATABASES,
    Difference,
    QueueEntries,
    QueueIndex,
    database_index,
    has_extension,
)
from schemas.rocketmq_store.queue_verification import CONSUME_QUEUE, EXTENSION, DatabaseVerification, QueueVerification
from schemas.rocketmq_store.segments import Segment, is_mapped_file, segments
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE

KINDS = (CONSUME_QUEUE, EXTENSION)
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
        self._knows_bit_maps = not facts.history_is_incomplete
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
