"""Reads the stored messages that have entries in more queues than their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, Int64s, MultiDispatch, has_entry
from filtering.tags_code import DELAY_PROPERTY, entry_tags_codes
from schemas.messages.commitlog_rows import Messages
from schemas.messages.stored_messages import PhysicalRange, has_property, read_messages
from schemas.storage import Storage

_NAMES = (MULTI_DISPATCH, MULTI_QUEUE_OFFSET, DELAY_PROPERTY)


@dataclass(frozen=True, eq=False)
class MultiDispatched:
    """Messages with both properties of :class:`MultiDispatch`: ``rows`` of ``messages``, in the order of the log.

    Arrays have an element for each of them. ``tags_code`` is that of the message's own entry. ``is_dispatched``:
    whether the message gets more entries.
    """

    messages: Messages
    rows: Int64s
    names: pa.StringArray
    offsets: pa.StringArray
    tags_code: Int64s
    is_dispatched: NDArray[np.bool_]

    def only(self, kept: NDArray[np.bool_]) -> MultiDispatched:
        """Some of them."""
        mask = pa.array(kept)
        return MultiDispatched(
            self.messages, self.rows[kept], self.names.filter(mask), self.offsets.filter(mask), self.tags_code[kept],
            self.is_dispatched[kept],
        )  # fmt: skip

    def entries(self, dispatch: MultiDispatch) -> Iterator[tuple[int, str, int, int]]:
        """Each entry: the position of its message in ``rows``, and its name, queue id and queue offset."""
        columns = self.names.to_pylist(), self.offsets.to_pylist(), self.messages.queue_id[self.rows].tolist()
        for at, row in enumerate(zip(*columns, self.is_dispatched.tolist(), strict=True)):
            names, offsets, queue_id, is_dispatched = row
            for place in dispatch.entries(names, offsets, queue_id, is_dispatched):
                yield (at, *place)


def multi_dispatched(
    storage: Storage, paths: Sequence[str], offsets: PhysicalRange, properties: Collection[str], broker: BrokerConfig
) -> Iterator[MultiDispatched]:
    """Those in some files of commitlog, whose physical offsets are in ``offsets``, in parts.

    ``properties``: the other properties that are needed.
    """
    for path in paths:
        if not has_property(storage, path, MULTI_QUEUE_OFFSET):
            continue
        for messages in read_messages(storage, [path], offsets, None, {*_NAMES, *properties}):
            found = messages.properties(_NAMES, np.arange(len(messages)))
            if {MULTI_DISPATCH, MULTI_QUEUE_OFFSET} <= found.keys():
                yield _of(messages, {name: column.text_of_each() for name, column in found.items()}, broker)


def _of(messages: Messages, texts: dict[str, pa.StringArray], broker: BrokerConfig) -> MultiDispatched:
    names, offsets = texts[MULTI_DISPATCH], texts[MULTI_QUEUE_OFFSET]
    rows = np.flatnonzero(names.is_valid().to_numpy(False) & offsets.is_valid().to_numpy(False))
    topic_of_shape = [shape.topic for shape in messages.shapes]
    excluded = broker.version.not_multi_dispatched
    is_dispatched = np.array([not topic.startswith(excluded) for topic in topic_of_shape], bool)
    at, shape_of = pa.array(rows), messages.shape_of[rows]
    delays = texts[DELAY_PROPERTY].take(at) if DELAY_PROPERTY in texts else pa.nulls(len(rows), pa.string())
    codes = entry_tags_codes(
        pa.array(topic_of_shape, pa.string()).take(pa.array(shape_of)), messages.named["TAGS"].take(at), delays,
        pa.array(messages.store_timestamp[rows]), broker.delay_levels,
    )  # fmt: skip
    return MultiDispatched(
        messages, rows, names.take(at), offsets.take(at), np.asarray(codes),
        has_entry(messages.sys_flag[rows]) & is_dispatched[shape_of],
    )  # fmt: skip
