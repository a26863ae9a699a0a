"""Reads the stored messages that have entries in more queues than their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, Int64s, MultiDispatch, has_entry
from filtering.frozen import frozen
from filtering.tags_code import DELAY_PROPERTY, entry_tags_codes
from schemas.messages.commitlog_rows import Messages, concat
from schemas.messages.stored_messages import PhysicalRange, has_property, read_messages
from schemas.storage import Storage

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
