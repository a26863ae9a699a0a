"""Reads messages and their entries back from the tables, with only the named properties, in tasks of a few files
each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import (
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    Entries,
    Int64s,
    MultiDispatch,
    among,
    has_entry,
)
from filtering.delivery.pull_window import NO_END
from filtering.frozen import frozen
from filtering.names import LMQ_PREFIX, is_lmq
from filtering.tags_code import DELAY_PROPERTY, SCHEDULE_TOPIC, entry_tags_codes, tags_codes
from filtering.time_spans import BEGINNING, FOREVER
from schemas.arrow_batches import one_array
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS
from schemas.delta.delta_log import OpenDataFile, open_data_file
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import (
    files_that_may_hold,
    filtered_by_mask,
    group_numbers,
    may_hold,
    one_of,
    read_rows,
    sorted_by,
    within,
)
from schemas.delta.warehouse import Warehouse
from schemas.messages.commitlog_rows import NUMBERS, Int32s, Messages, Shape, TopicBatch, concat, topic_batches
from schemas.rocketmq_store.properties import Pairs
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE

PhysicalRange: TypeAlias = tuple[int, int]
"""Physical offsets in bytes, the second exclusive."""
WHOLE_LOG: PhysicalRange = (0, NO_END)

PLACES = ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")
"""The columns that say where a message is, and since when."""
ENTRY_COLUMNS = (*PLACES, "store_size", "body_length", "reconsume_times")
MESSAGE_COLUMNS = (*NUMBERS, NAMED_PROPERTIES["TAGS"])


def read_messages(
    storage: Storage,
    paths: Sequence[str],
    offsets: PhysicalRange,
    topics: Collection[str] | None,
    properties: Collection[str],
    columns: Collection[str] = MESSAGE_COLUMNS,
) -> Iterator[Messages]:
    """The messages in some files of commitlog, whose physical offsets are in ``offsets``.

    ``topics``: the topics to read; None: all. ``properties``: the names of the properties that are needed.
    ``columns``: PLACES and those of MESSAGE_COLUMNS that are needed; the others are as if they were not stored.
    """
    for path in paths:
        with open_data_file(COMMITLOG, storage, path, COMMITLOG.dictionary_texts) as file:
            for number, group in enumerate(file.row_groups):
                if not may_hold(group, [within("commitlog_offset", *offsets)]):
                    continue
                messages = _read_group(file, number, offsets, topics, properties, columns)
                if messages is not None and len(messages):
                    yield messages


def has_property(storage: Storage, path: str, name: str) -> bool:
    """Whether a message in a file of commitlog has a property."""
    with open_data_file(COMMITLOG, storage, path, ["property_names"]) as file:
        for group in range(len(file.row_groups)):
            rows = file.read(group, ["property_names", "more_properties"])
            distinct = rows["property_names"].unique().drop_null().to_pylist()
            if any(name in names.split(NAME_SEPARATOR) for names in distinct):
                return True
            others = rows["more_properties"].combine_chunks()
            if others.null_count < len(others) and Pairs.of(others).value(name).null_count < len(others):
                return True
    return False


def newest_messages_first(
    storage: Storage, path: str, topics: Collection[str], properties: Collection[str]
) -> Iterator[tuple[Messages | None, int]]:
    """The messages of some topics in each row group of a file of commitlog, and the number of all its rows.

    The last row group comes first; a row group without such a message gives None.
    """
    with open_data_file(COMMITLOG, storage, path, COMMITLOG.dictionary_texts) as file:
        for number, group in reversed(list(enumerate(file.row_groups))):
            yield _read_group(file, number, WHOLE_LOG, topics, properties, MESSAGE_COLUMNS), group.num_rows


def end_of_messages(warehouse: Warehouse, files: Sequence[StoredFile], begun: int) -> int:
    """The physical offset after the last of the messages that begin at ``begun`` or later; 0 without one.

    ``files``: of commitlog.
    """
    columns = ["commitlog_offset", "store_size"]
    rows = warehouse.rows(COMMITLOG, columns, [within("commitlog_offset", begun)], files)
    return pc.max(pc.add(*rows.columns)).as_py() or 0


def _read_group(
    file: OpenDataFile,
    group: int,
    offsets: PhysicalRange,
    topics: Collection[str] | None,
    properties: Collection[str],
    columns: Collection[str],
) -> Messages | None:
    first = file.read(group, ["topic", "commitlog_offset", "property_names"])
    is_wanted = within("commitlog_offset", *offsets).mask(first)
    if topics is not None:
        is_wanted = pc.and_(is_wanted, one_of("topic", topics).mask(first))
    if not pc.any(is_wanted).as_py():
        return None
    first = filtered_by_mask(first, is_wanted)
    shapes, shape_of = shapes_of(first)
    used = {slot for shape in shapes for slot, name in enumerate(shape.names) if name in properties}
    named = {name: column for name, column in NAMED_PROPERTIES.items() if name in properties or column in columns}
    numbers = [name for name in NUMBERS if name in columns and name != "commitlog_offset"]
    texts = [*named.values(), *(SLOTS[slot] for slot in sorted(used)), *(["more_properties"] if properties else [])]
    kept = filtered_by_mask(file.read(group, [*numbers, *texts]), is_wanted)
    others = one_array(kept["more_properties"]) if properties else None
    nulls = pa.nulls(len(first), pa.string())

    def number(name: str) -> NDArray[Any]:
        unknown = -1 if name == "body_length" else 0
        if name not in (*numbers, "commitlog_offset"):
            return np.full(len(first), unknown, np.int32)
        column = (kept if name in numbers else first)[name]
        values: NDArray[Any] = (column.fill_null(unknown) if column.null_count else column).to_numpy()
        return values

    return Messages(
        shapes=shapes,
        shape_of=shape_of,
        **{name: number(name) for name in NUMBERS},
        named={name: one_array(kept[column]) if name in named else nulls for name, column in NAMED_PROPERTIES.items()},
        slots=[one_array(kept[name]) if slot in used else None for slot, name in enumerate(SLOTS)],
        others=others if others is not None and others.null_count < len(others) else None,
    )


def shapes_of(rows: pa.Table) -> tuple[list[Shape], NDArray[np.int32]]:
    """The distinct pairs of ``topic`` and ``property_names``, and the index of each row's pair."""
    keys, numbers = group_numbers(rows, ["topic", "property_names"])
    return [Shape(topic, tuple((names or "").split(NAME_SEPARATOR))) for topic, names in keys], numbers.astype(np.int32)


# Tasks: ranges of the log of a few files each.


FILES_IN_A_TASK = 8
MESSAGES_IN_A_TASK = 4 << 20
"""Unless one file has more. A task keeps their filter bit maps in memory, up to some hundred bytes each."""
MESSAGES_IN_A_SCAN = 1 << 20
"""The same for tasks that write no files: fewer stay in the memory that the system has given already."""

FilesOf = Callable[[Table], Sequence[StoredFile]]


@frozen
class StoredRange:
    """Messages with physical offsets in ``offsets``, in files of commitlog.

    ``entry_files`` are the files of consumequeue with their entries. ``size``: bytes of ``message_files``.
    """

    offsets: PhysicalRange
    message_files: tuple[str, ...]
    entry_files: tuple[str, ...]
    size: int


def stored_ranges(
    files_of: FilesOf,
    offsets: PhysicalRange = WHOLE_LOG,
    first_run: str | None = None,
    period: tuple[int, int] = (BEGINNING, FOREVER),
    messages: int = MESSAGES_IN_A_TASK,
) -> list[StoredRange]:
    """The stored messages with physical offsets in a range, in tasks.

    ``first_run``: leave out files without an entry of this or a later run. ``period``: leave out files without a
    message stored in it (ms, the second exclusive). ``messages``: those of a task, unless one file has more.
    """
    entry_files = files_of(CONSUMEQUEUE)
    if first_run is not None:
        entry_files = files_that_may_hold(entry_files, [within("run", first_run)])
        first = min((file.least["commitlog_offset"] for file in entry_files), default=NO_END)
        offsets = max(offsets[0], first), offsets[1]
    ranges = []
    for files in _parts(_files(files_of(COMMITLOG), offsets, period), messages):
        low = max(offsets[0], files[0].least["commitlog_offset"])
        high = min(offsets[1], max(file.greatest["commitlog_offset"] for file in files) + 1)
        entry_files_in_range = _files(entry_files, (low, high), period)
        size = sum(file.size for file in files)
        ranges.append(StoredRange((low, high), _paths(files), _paths(entry_files_in_range), size))
    return ranges


def _files(files: Sequence[StoredFile], offsets: PhysicalRange, period: tuple[int, int]) -> list[StoredFile]:
    """The files that may hold the messages, in the order of the log."""
    candidates = files_that_may_hold(files, [within("commitlog_offset", *offsets), within("store_timestamp", *period)])
    return sorted(candidates, key=lambda file: (file.least["commitlog_offset"], file.greatest["commitlog_offset"]))


def _parts(files: Iterable[StoredFile], most: int) -> Iterator[list[StoredFile]]:
    """The files of each task."""
    part: list[StoredFile] = []
    for file in files:
        messages = sum(other.rows for other in [*part, file])
        if part and (len(part) == FILES_IN_A_TASK or messages > most):
            yield part
            part = []
        part.append(file)
    if part:
        yield part


def _paths(files: Iterable[StoredFile]) -> tuple[str, ...]:
    return tuple(file.path for file in files)


# Entries, with the message properties that filters need.


Result = TypeVar("Result")


@frozen(eq=False)
class StoredEntries:
    """Entries of consumequeue, in any order; the bit maps are None if they were not read.

    The bit maps of millions of entries may have more than 2 GiB, the limit of a BinaryArray. ``in_lmqs``: the rows of
    entries in LMQs, which messages may have besides their own; None if no message has several.
    """

    commitlog_offset: NDArray[np.int64]
    tags_code: NDArray[np.int64]
    filter_bit_map: pa.LargeBinaryArray | None
    in_lmqs: pa.Table | None = None

    @classmethod
    def read(cls, storage: Storage, paths: Sequence[str], offsets: PhysicalRange, bit_maps: bool) -> StoredEntries:
        """The entries in some files whose physical offsets are in ``offsets``."""
        in_range = [within("commitlog_offset", *offsets)]
        columns = ["commitlog_offset", "tags_code", *(["filter_bit_map"] if bit_maps else [])]
        entries = cls._of(read_rows(CONSUMEQUEUE, storage, paths, columns, in_range))
        _, sorted_offsets = entries._in_log_order
        if not np.any(sorted_offsets[1:] == sorted_offsets[:-1]):
            return entries
        rows = read_rows(CONSUMEQUEUE, storage, paths, [*columns, "topic", "queue_id", "queue_offset"], in_range)
        is_in_lmq = pc.starts_with(rows["topic"], LMQ_PREFIX)
        return cls._of(rows.filter(pc.invert(is_in_lmq)), rows.filter(is_in_lmq))

    @classmethod
    def _of(cls, rows: pa.Table, in_lmqs: pa.Table | None = None) -> StoredEntries:
        has_bit_maps = "filter_bit_map" in rows.column_names
        bit_maps = rows["filter_bit_map"].cast(pa.large_binary()).combine_chunks() if has_bit_maps else None
        return cls(rows["commitlog_offset"].to_numpy(), rows["tags_code"].to_numpy(), bit_maps, in_lmqs)

    @cached_property
    def _in_log_order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions of the entries in the order of the log, and their physical offsets in this order."""
        order = np.argsort(self.commitlog_offset, kind="stable")
        return order, self.commitlog_offset[order]

    def find(self, commitlog_offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The position of each message's entry, and whether it has one."""
        order, sorted_offsets = self._in_log_order
        if not len(order):
            return np.zeros(len(commitlog_offsets), np.int64), np.zeros(len(commitlog_offsets), bool)
        inside = np.minimum(np.searchsorted(sorted_offsets, commitlog_offsets), len(order) - 1)
        return order[inside], sorted_offsets[inside] == commitlog_offsets

    def bit_maps_at(self, positions: NDArray[np.int64]) -> pa.BinaryArray | None:
        """The filter bit maps of some entries; None if they were not read."""
        if self.filter_bit_map is None:
            return None
        return self.filter_bit_map.take(pa.array(positions)).cast(pa.binary())


def read_entries(
    part: StoredRange,
    commitlog: Storage,
    consumequeue: Storage,
    properties: Mapping[str, Sequence[str]],
    bit_maps: bool = True,
    columns: Collection[str] = ENTRY_COLUMNS,
    each_has_entry: bool = False,
) -> Iterator[Entries]:
    """The entries of some topics, in blocks. ``properties``: by topic, the message properties that are needed.

    ``columns``: ENTRY_COLUMNS, or only PLACES: then the messages' sizes, bodies and attempts are not known.
    ``each_has_entry``: whether all messages have their entries (LedgerEntry.is_complete). Those without bit maps then
    follow from the messages, and are not read.
    """
    names = {name for topic_names in properties.values() for name in topic_names}
    has_lmqs = any(map(is_lmq, properties))
    topics = None if has_lmqs else set(properties)  # an LMQ has the messages of other topics
    stored = None
    if each_has_entry and not (bit_maps or has_lmqs or SCHEDULE_TOPIC in properties):
        columns = [*columns, "sys_flag", NAMED_PROPERTIES["TAGS"]]
    else:
        stored = StoredEntries.read(consumequeue, part.entry_files, part.offsets, bit_maps)
    messages = read_messages(commitlog, part.message_files, part.offsets, topics, names, columns)
    for batch in topic_batches(messages):
        yield from _entries_of(batch, stored, properties)


def _entries_of(
    batch: TopicBatch, stored: StoredEntries | None, properties: Mapping[str, Sequence[str]]
) -> Iterator[Entries]:
    """``stored``: None if the entries follow from the messages."""
    messages = batch.messages
    if stored is None:
        codes, has_own = np.asarray(tags_codes(messages.named["TAGS"])), has_entry(messages.sys_flag)
    else:
        at, has_own = stored.find(messages.commitlog_offset)
        codes = stored.tags_code[at] if len(stored.tags_code) else at
    for topic, in_log_order in messages.rows_by_topic(batch.is_due & has_own):
        if topic not in properties:
            continue
        rows = messages.by_queue(in_log_order)
        yield Entries(
            topic,
            messages.queue_id[rows],
            messages.queue_offset[rows],
            messages.commitlog_offset[rows],
            messages.store_size[rows],
            codes[rows],
            messages.store_timestamp[rows],
            messages.properties(properties[topic], rows),
            None if stored is None else stored.bit_maps_at(at[rows]),
            without_body=np.flatnonzero(messages.body_length[rows] == 0),
            reconsume_times=messages.reconsume_times[rows],
        )
    if stored is not None and stored.in_lmqs is not None:
        yield from _in_lmqs(batch, stored.in_lmqs, properties, has_bit_maps=stored.filter_bit_map is not None)


def _in_lmqs(
    batch: TopicBatch, entries: pa.Table, properties: Mapping[str, Sequence[str]], has_bit_maps: bool
) -> Iterator[Entries]:
    """The entries in LMQs of a batch of messages, as :func:`_entries_of`."""
    messages = batch.messages
    rows = np.flatnonzero(batch.is_due)
    rows = rows[np.argsort(messages.commitlog_offset[rows], kind="stable")]
    offsets = messages.commitlog_offset[rows]
    entry_offsets = entries["commitlog_offset"].to_numpy()
    entries = entries.filter(pa.array(among(entry_offsets, offsets)))
    for topic in pc.unique(entries["topic"]).to_pylist():
        if topic not in properties:
            continue
        topic_entries = sorted_by(entries.filter(pc.equal(entries["topic"], topic)), "queue_id", "queue_offset")
        numbers = {name: topic_entries[name].to_numpy() for name in ("queue_id", "queue_offset", "commitlog_offset")}
        at = rows[np.searchsorted(offsets, numbers["commitlog_offset"])]
        yield Entries(
            topic,
            **numbers,
            size=messages.store_size[at],
            tags_code=topic_entries["tags_code"].to_numpy(),
            store_timestamp=messages.store_timestamp[at],
            properties=messages.properties(properties[topic], at),
            bit_maps=pa.nulls(len(at), pa.binary()) if has_bit_maps else None,
            without_body=np.flatnonzero(messages.body_length[at] == 0),
            reconsume_times=messages.reconsume_times[at],
        )


def scan_entries(
    warehouse: Warehouse,
    broker_name: str,
    properties: Mapping[str, Sequence[str]],
    function: Callable[[Iterator[Entries]], Result],
    session: Session | None,
    period: tuple[int, int] = (BEGINNING, FOREVER),
    bit_maps: bool = True,
    columns: Collection[str] = ENTRY_COLUMNS,
    each_has_entry: bool = False,
) -> Iterator[Result]:
    """Calls ``function`` on the entries of some topics, part by part in the order of the log. It must be picklable.

    ``properties``: by topic, the message properties that it reads. ``period``: files without a message stored in it
    (ms, the second exclusive) are left out. ``bit_maps``: whether the filter bit maps are read. ``columns`` and
    ``each_has_entry``: as for :func:`read_entries`.
    """
    files_of = partial(warehouse.files, broker_name=broker_name)
    ranges = stored_ranges(files_of, period=period, messages=MESSAGES_IN_A_SCAN)
    size = sum(part.size for part in ranges)
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    read = partial(
        read_entries,
        commitlog=commitlog,
        consumequeue=consumequeue,
        properties=properties,
        bit_maps=bit_maps,
        columns=columns,
        each_has_entry=each_has_entry,
    )
    return run_tasks(ranges, partial(_read_by, read=read, function=function), size, session)


def _read_by(
    part: StoredRange, read: Callable[[StoredRange], Iterator[Entries]], function: Callable[[Iterator[Entries]], Result]
) -> Result:
    return function(read(part))


# Messages that have entries in more queues than their own.


_NAMES = (MULTI_DISPATCH, MULTI_QUEUE_OFFSET, DELAY_PROPERTY)


@frozen(eq=False)
class MultiDispatched:
    """Messages with both properties of :class:`MultiDispatch`, in the order of the log.

    Arrays have an element for each of them. ``tags_code`` is that of the message's own entry. ``is_dispatched``:
    whether the message gets more entries.
    """

    messages: Messages
    names: pa.StringArray
    offsets: pa.StringArray
    tags_code: Int64s
    is_dispatched: NDArray[np.bool_]

    def without(self, known: NDArray[np.bool_]) -> MultiDispatched:
        """Those that are not known."""
        mask = pa.array(~known)
        return MultiDispatched(
            self.messages.take(np.flatnonzero(~known)), self.names.filter(mask), self.offsets.filter(mask),
            self.tags_code[~known], self.is_dispatched[~known],
        )  # fmt: skip

    def entries(self, dispatch: MultiDispatch) -> Iterator[tuple[int, str, int, int]]:
        """Each entry: the position of its message, and its name, queue id and queue offset."""
        columns = self.names.to_pylist(), self.offsets.to_pylist(), self.messages.queue_id.tolist()
        for at, row in enumerate(zip(*columns, self.is_dispatched.tolist(), strict=True)):
            names, offsets, queue_id, is_dispatched = row
            for place in dispatch.entries(names, offsets, queue_id, is_dispatched):
                yield (at, *place)


def multi_dispatched(
    storage: Storage, paths: Sequence[str], offsets: PhysicalRange, properties: Collection[str], broker: BrokerConfig
) -> MultiDispatched | None:
    """Those in some files of commitlog, whose physical offsets are in ``offsets``; None if there are none.

    ``properties``: the other properties that are needed.
    """
    parts = []
    for path in paths:
        if has_property(storage, path, MULTI_QUEUE_OFFSET):
            for messages in read_messages(storage, [path], offsets, None, {*_NAMES, *properties}):
                texts = messages.properties(_NAMES[:2], np.arange(len(messages)))
                if len(texts) == 2:
                    has_both = [column.text_of_each().is_valid().to_numpy(False) for column in texts.values()]
                    parts.append(messages.take(np.flatnonzero(np.logical_and(*has_both))))
    if not parts:
        return None
    messages = concat(parts)
    if (np.diff(messages.commitlog_offset) < 0).any():  # a recovered message is in a later file than those behind it
        messages = messages.take(np.argsort(messages.commitlog_offset))
    return _of(messages, broker)


def _of(messages: Messages, broker: BrokerConfig) -> MultiDispatched:
    every = np.arange(len(messages))
    texts = {name: column.text_of_each() for name, column in messages.properties(_NAMES, every).items()}
    nulls = pa.nulls(len(messages), pa.string())
    topic_of_shape = [shape.topic for shape in messages.shapes]
    excluded = broker.version.not_multi_dispatched
    is_dispatched = np.array([not topic.startswith(excluded) for topic in topic_of_shape], bool)
    codes = entry_tags_codes(
        pa.array(topic_of_shape, pa.string()).take(pa.array(messages.shape_of)), messages.named["TAGS"],
        texts.get(DELAY_PROPERTY, nulls), pa.array(messages.store_timestamp), broker.delay_levels,
    )  # fmt: skip
    return MultiDispatched(
        messages, texts.get(MULTI_DISPATCH, nulls), texts.get(MULTI_QUEUE_OFFSET, nulls), np.asarray(codes),
        has_entry(messages.sys_flag) & is_dispatched[messages.shape_of],
    )  # fmt: skip


# The names of the properties that the messages of a topic have.


def property_names(warehouse: Warehouse, broker_name: str, asked: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """By topic, the names of the properties that messages have. TAGS, KEYS and UNIQ_KEY are always among them.

    ``asked``: by topic, the names that some filter reads. A file lists these for a topic even if no message has them,
    so their values are searched until one is found. Other names are taken as listed. Topics without messages are left
    out, and so may be topics for which no name but TAGS, KEYS and UNIQ_KEY is asked.
    """
    search = _Search({topic: set(names) - set(NAMED_PROPERTIES) for topic, names in asked.items()})
    storage = warehouse.log(COMMITLOG).storage
    for file in warehouse.files(COMMITLOG, broker_name):
        with open_data_file(COMMITLOG, storage, file.path, ["topic", "property_names"]) as opened:
            for group in range(len(opened.row_groups)):
                if not any(search.missing.values()):
                    return search.names
                search.look_into(opened, group)
    return search.names


@dataclass
class _Search:
    """``missing``: by topic, the names that were asked for and not found so far."""

    missing: dict[str, set[str]]
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(lambda: set(NAMED_PROPERTIES)))

    def look_into(self, opened: OpenDataFile, group: int) -> None:
        rows = opened.read(group, ["topic", "property_names", "more_properties"])
        shapes, shape_of = shapes_of(rows)

        @cache
        def has_value(slot: int) -> NDArray[np.bool_]:
            return _has_value(opened, group, SLOTS[slot], shape_of, len(shapes))

        for number, shape in enumerate(shapes):
            missing = self.missing.get(shape.topic, set())
            self.names[shape.topic].update(set(filter(None, shape.names)) - missing)
            for slot, name in enumerate(shape.names):
                if name in missing and has_value(slot)[number]:
                    self._add(shape.topic, name)
        others = rows.filter(pc.is_valid(rows["more_properties"]))
        if len(others):
            pairs = Pairs.of(others["more_properties"].combine_chunks())
            named = pa.table([others["topic"].take(pa.array(pairs.text_of_each())), pairs.names], ["topic", "name"])
            for row in named.group_by(["topic", "name"]).aggregate([]).to_pylist():
                self._add(row["topic"], row["name"])

    def _add(self, topic: str, name: str) -> None:
        self.names[topic].add(name)
        self.missing.get(topic, set()).discard(name)


def _has_value(opened: OpenDataFile, group: int, column: str, shape_of: Int32s, shapes: int) -> NDArray[np.bool_]:
    """Which shapes have a row in a row group with a value in a column."""
    is_valid = opened.read(group, [column])[column].is_valid().to_numpy()
    return np.bincount(shape_of[is_valid], minlength=shapes) > 0
