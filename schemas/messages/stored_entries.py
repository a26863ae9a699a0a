"""Reads entries back from the tables, with the message properties that filters need, a few files per task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from filtering.delivery.entries import Entries
from filtering.delivery.pull_window import BEGINNING, FOREVER
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.stored_files import StoredFile, files_since
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_messages import WHOLE_LOG, StoredEntries, read_messages
from schemas.messages.topic_batches import TopicBatch, topic_batches
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage

Result = TypeVar("Result")
FILES_IN_A_TASK = 8
MESSAGES_IN_A_TASK = 4 << 20
"""Unless one file has more. A task keeps their filter bit maps in memory, up to some hundred bytes each."""

FilesOf = Callable[[Table], Sequence[StoredFile]]


@dataclass(frozen=True)
class StoredRange:
    """Messages with physical offsets in ``offsets`` (the second exclusive), in files of commitlog.

    ``entry_files`` are the files of consumequeue with their entries.
    """

    offsets: tuple[int, int]
    message_files: tuple[str, ...]
    entry_files: tuple[str, ...]


def stored_ranges(
    files_of: FilesOf,
    offsets: tuple[int, int] = WHOLE_LOG,
    first_run: str | None = None,
    stored: tuple[int, int] = (BEGINNING, FOREVER),
) -> list[StoredRange]:
    """The stored messages with physical offsets in a range (the second exclusive), in tasks.

    ``first_run``: leave out files without an entry of this or a later run. ``stored``: leave out files without a
    message stored in this time (ms, the second exclusive).
    """
    entry_files = files_of(CONSUMEQUEUE)
    if first_run is not None:
        entry_files = files_since(entry_files, first_run)
        first = min((file.least["commitlog_offset"] for file in entry_files), default=FOREVER)
        offsets = max(offsets[0], first), offsets[1]
    ranges = []
    for files in _parts(_files(files_of(COMMITLOG), offsets, stored)):
        low = max(offsets[0], files[0].least["commitlog_offset"])
        high = min(offsets[1], max(file.greatest["commitlog_offset"] for file in files) + 1)
        of_entries = _files(entry_files, (low, high), stored)
        ranges.append(StoredRange((low, high), _paths(files), _paths(of_entries)))
    return ranges


def _files(files: Sequence[StoredFile], offsets: tuple[int, int], stored: tuple[int, int]) -> list[StoredFile]:
    """The files that may hold the messages, in the order of the log."""
    chosen = [
        file
        for file in files
        if file.may_have("commitlog_offset", offsets[0], offsets[1] - 1)
        and file.may_have("store_timestamp", stored[0], stored[1] - 1)
    ]
    return sorted(chosen, key=lambda file: (file.least["commitlog_offset"], file.greatest["commitlog_offset"]))


def _parts(files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
    """The files of each task."""
    part: list[StoredFile] = []
    for file in files:
        messages = sum(other.rows for other in [*part, file])
        if part and (len(part) == FILES_IN_A_TASK or messages > MESSAGES_IN_A_TASK):
            yield part
            part = []
        part.append(file)
    if part:
        yield part


def _paths(files: Iterable[StoredFile]) -> tuple[str, ...]:
    return tuple(file.path for file in files)


def read_entries(
    part: StoredRange,
    commitlog: Storage,
    consumequeue: Storage,
    properties: Mapping[str, Sequence[str]],
    bit_maps: bool = True,
) -> Iterator[Entries]:
    """The entries of some topics, in blocks. ``properties``: by topic, the message properties that are needed."""
    names = {name for topic_names in properties.values() for name in topic_names}
    messages = read_messages(commitlog, part.message_files, part.offsets, set(properties), names)
    stored = StoredEntries.read(consumequeue, part.entry_files, part.offsets, bit_maps)
    for batch in topic_batches(messages):
        yield from _entries_of(batch, stored, properties)


def _entries_of(batch: TopicBatch, stored: StoredEntries, properties: Mapping[str, Sequence[str]]) -> Iterator[Entries]:
    messages = batch.messages
    at, has_entry = stored.find(messages.commitlog_offset)
    for topic, in_log_order in messages.rows_by_topic(batch.chosen & has_entry):
        rows = messages.by_queue(in_log_order)
        yield Entries(
            topic,
            messages.queue_id[rows],
            messages.queue_offset[rows],
            messages.commitlog_offset[rows],
            messages.store_size[rows],
            stored.tags_code[at[rows]],
            messages.store_timestamp[rows],
            messages.properties(properties[topic], rows),
            stored.bit_maps_at(at[rows]),
        )


@dataclass(frozen=True)
class _Scan(Generic[Result]):
    commitlog: Storage
    consumequeue: Storage
    properties: Mapping[str, Sequence[str]]
    function: Callable[[Iterator[Entries]], Result]
    bit_maps: bool

    def __call__(self, part: StoredRange) -> Result:
        return self.function(read_entries(part, self.commitlog, self.consumequeue, self.properties, self.bit_maps))


def scan_entries(
    warehouse: Warehouse,
    broker_name: str,
    properties: Mapping[str, Sequence[str]],
    function: Callable[[Iterator[Entries]], Result],
    session: Session | None,
    stored: tuple[int, int] = (BEGINNING, FOREVER),
    bit_maps: bool = True,
) -> Iterator[Result]:
    """Calls ``function`` on the entries of some topics, part by part in the order of the log. It must be picklable.

    ``properties``: by topic, the message properties that it reads. ``stored``: files without a message stored in
    this time (ms, the second exclusive) are left out. ``bit_maps``: whether the filter bit maps are read.
    """
    ranges = stored_ranges(lambda table: warehouse.files(table, broker_name), stored=stored)
    sizes = {file.path: file.size for file in warehouse.files(COMMITLOG, broker_name)}
    size = sum(sizes[path] for part in ranges for path in part.message_files)
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    return run_tasks(ranges, _Scan(commitlog, consumequeue, properties, function, bit_maps), size, session)
