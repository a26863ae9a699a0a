"""Reads entries back from the tables, with the message properties that filters need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.delivery.entries import Entries
from filtering.delivery.pull_window import BEGINNING, FOREVER
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table_rows import read_rows, within
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_messages import PhysicalRange, read_messages
from schemas.messages.stored_ranges import StoredRange, stored_ranges
from schemas.messages.topic_batches import TopicBatch, topic_batches
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class StoredEntries:
    """Entries of consumequeue, in any order; the bit maps are None if they were not read.

    The bit maps of millions of entries may have more than 2 GiB, the limit of a BinaryArray.
    """

    commitlog_offset: NDArray[np.int64]
    tags_code: NDArray[np.int64]
    filter_bit_map: pa.LargeBinaryArray | None

    @classmethod
    def read(cls, storage: Storage, paths: Sequence[str], offsets: PhysicalRange, bit_maps: bool) -> StoredEntries:
        """The entries in some files whose physical offsets are in ``offsets``."""
        in_range = [within("commitlog_offset", *offsets)]
        columns = ["commitlog_offset", "tags_code", *(["filter_bit_map"] if bit_maps else [])]
        rows = read_rows(CONSUMEQUEUE, storage, paths, columns, in_range)
        stored = rows["filter_bit_map"].cast(pa.large_binary()).combine_chunks() if bit_maps else None
        return cls(rows["commitlog_offset"].to_numpy(), rows["tags_code"].to_numpy(), stored)

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
            without_body=np.flatnonzero(messages.body_length[rows] == 0),
        )


def scan_entries(
    warehouse: Warehouse,
    broker_name: str,
    properties: Mapping[str, Sequence[str]],
    function: Callable[[Iterator[Entries]], Result],
    session: Session | None,
    period: tuple[int, int] = (BEGINNING, FOREVER),
    bit_maps: bool = True,
) -> Iterator[Result]:
    """Calls ``function`` on the entries of some topics, part by part in the order of the log. It must be picklable.

    ``properties``: by topic, the message properties that it reads. ``period``: files without a message stored in it
    (ms, the second exclusive) are left out. ``bit_maps``: whether the filter bit maps are read.
    """
    ranges = stored_ranges(lambda table: warehouse.files(table, broker_name), period=period)
    size = sum(part.size for part in ranges)
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    read = partial(
        read_entries, commitlog=commitlog, consumequeue=consumequeue, properties=properties, bit_maps=bit_maps
    )
    return run_tasks(ranges, partial(_read_by, read=read, function=function), size, session)


def _read_by(
    part: StoredRange, read: Callable[[StoredRange], Iterator[Entries]], function: Callable[[Iterator[Entries]], Result]
) -> Result:
    return function(read(part))
