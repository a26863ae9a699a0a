"""Messages in columns, as the filters read them: from a log's bytes, or from rows of commitlog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s
from filtering.matcher.column import Column
from schemas.arrow_batches import decoded, of_one_type
from schemas.rocketmq_store.properties.more_properties import values_of
from schemas.rocketmq_store.properties.property_values import Texts

Int32s = NDArray[np.int32]
NUMBERS = ("queue_id", "queue_offset", "commitlog_offset", "store_size", "store_timestamp", "sys_flag", "body_length")
"""The numeric attributes of messages, named as in commitlog. A message log may not know ``body_length``: -1."""


@dataclass(frozen=True)
class Shape:
    """How the properties of messages of one topic are split: slot i has the property names[i]."""

    topic: str
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Messages:
    """n messages in the order of the log.

    ``shape_of`` is each message's index in ``shapes``. ``named`` has the properties with columns of their own,
    ``slots`` the other properties (None: all null), both as texts or dictionaries; ``others`` has those without a
    slot, as a text (null: none).
    """

    shapes: Sequence[Shape]
    shape_of: Int32s
    queue_id: Int32s
    queue_offset: Int64s
    commitlog_offset: Int64s
    store_size: Int32s
    store_timestamp: Int64s
    sys_flag: Int32s
    body_length: Int32s
    named: Mapping[str, Texts]
    slots: Sequence[Texts | None]
    others: pa.StringArray | None

    def __len__(self) -> int:
        return len(self.shape_of)

    def topic_sizes(self) -> Int64s:
        """For each message, the number of messages of its topic."""
        topics, topic_of_shape = self._topics()
        sizes = np.bincount(topic_of_shape[self.shape_of], minlength=len(topics))
        of_each: Int64s = sizes[topic_of_shape][self.shape_of]
        return of_each

    def rows_by_topic(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[str, Int64s]]:
        """The rows of some messages by topic, in the order of the topics' names, and each in the order of the log."""
        topics, topic_of_shape = self._topics()
        rows = np.flatnonzero(chosen)
        topic_of = topic_of_shape[self.shape_of[rows]]
        rows = rows[np.argsort(topic_of, kind="stable")]
        ends = np.cumsum(np.bincount(topic_of, minlength=len(topics)))
        for topic, start, end in zip(topics, [0, *ends.tolist()], ends.tolist(), strict=False):
            if start < end:
                yield topic, rows[start:end]

    def _topics(self) -> tuple[list[str], NDArray[Any]]:
        """The topics by name, and the number of each shape's topic among them."""
        topics = sorted({shape.topic for shape in self.shapes})
        number = {topic: i for i, topic in enumerate(topics)}
        # NumPy sorts small integers by their digits, which takes linear time.
        return topics, np.array([number[shape.topic] for shape in self.shapes], np.min_scalar_type(len(topics)))

    def by_queue(self, rows: Int64s) -> Int64s:
        """The same rows by queue, and in each queue by queue offset."""
        return rows[np.lexsort((self.queue_offset[rows], self.queue_id[rows]))]

    def take(self, rows: Int64s) -> Messages:
        """Some of the messages, by their row numbers."""
        wanted = pa.array(rows)
        return replace(
            self,
            shape_of=self.shape_of[rows],
            **{name: getattr(self, name)[rows] for name in NUMBERS},
            named={name: column.take(wanted) for name, column in self.named.items()},
            slots=[None if slot is None else slot.take(wanted) for slot in self.slots],
            others=None if self.others is None else self.others.take(wanted),
        )

    def text_bytes(self) -> int:
        """The bytes of all properties, as if no column were a dictionary."""
        return sum(_bytes(column) for column in (*self.named.values(), *self.slots, self.others) if column is not None)

    def properties(self, names: Iterable[str], rows: Int64s) -> dict[str, Column]:
        """Some properties of some messages of one topic, by name. Those that no message has may be left out."""
        shape_of = self.shape_of[rows]
        # The shapes are few, so counting is faster than sorting.
        shapes = np.flatnonzero(np.bincount(shape_of, minlength=len(self.shapes)))
        found = {name: self._property(name, rows, shape_of, shapes) for name in names}
        return {name: column for name, column in found.items() if column is not None}

    def _property(self, name: str, rows: Int64s, shape_of: Int32s, shapes: Int64s) -> Column | None:
        if name in self.named:
            return _column(self.named[name], rows)
        slot_of = np.full(len(self.shapes), -1, np.int32)
        for shape in shapes.tolist():
            names = self.shapes[shape].names
            slot_of[shape] = names.index(name) if name in names else -1
        found = without_slot = None
        if self.others is not None:
            without_slot = np.flatnonzero(slot_of[shape_of] < 0)
            found = _values_of(self.others.take(pa.array(rows[without_slot])), name)
        used = sorted({slot for slot in slot_of[shapes].tolist() if slot >= 0 and self.slots[slot] is not None})
        if not used and found is None:
            return None
        if len(used) == 1 and found is None:
            column = _column(self.slots[used[0]], rows)
            return column if np.all(slot_of[shapes] == used[0]) else column.without(slot_of[shape_of] != used[0])
        texts = [decoded(self.slots[slot]) for slot in used]
        number = np.full(len(self.slots) + 1, -1, np.int64)
        number[used] = np.arange(len(used))
        part = number[slot_of[shape_of]]
        positions = np.where(part < 0, -1, rows + part * len(self)).astype(np.int32)
        if found is not None:
            positions[without_slot] = np.arange(len(found)) + len(used) * len(self)
            texts.append(found)
        return Column(pa.concat_arrays(texts), positions)


def concat(parts: Sequence[Messages]) -> Messages:
    """Concatenates some parts."""
    if len(parts) == 1:
        return parts[0]
    codes: dict[Shape, int] = {}
    shape_of = []
    for part in parts:
        part_codes = np.array([codes.setdefault(shape, len(codes)) for shape in part.shapes], np.int32)
        shape_of.append(part_codes[part.shape_of])
    slots = max(len(part.slots) for part in parts)
    numbers = {name: np.concatenate([getattr(part, name) for part in parts]) for name in NUMBERS}
    return Messages(
        shapes=list(codes),
        shape_of=np.concatenate(shape_of),
        **numbers,
        named={name: pa.concat_arrays(of_one_type([part.named[name] for part in parts])) for name in parts[0].named},
        slots=[
            _concat([part.slots[i] if i < len(part.slots) else None for part in parts], parts) for i in range(slots)
        ],
        others=_concat([part.others for part in parts], parts),
    )


def _concat(arrays: Sequence[Texts | None], parts: Sequence[Messages]) -> Texts | None:
    if all(array is None for array in arrays):
        return None
    filled = [
        pa.nulls(len(part), pa.string()) if array is None else array for array, part in zip(arrays, parts, strict=True)
    ]
    return pa.concat_arrays(of_one_type(filled))


def _values_of(texts: pa.StringArray, name: str) -> pa.StringArray | None:
    """The values of a property in some of ``others``; None if there are none."""
    if texts.null_count == len(texts):
        return None
    values = values_of(texts, name)
    return values if values.null_count < len(values) else None


def _bytes(texts: Texts) -> int:
    is_dictionary = pa.types.is_dictionary(texts.type)
    lengths = pc.binary_length(texts.dictionary).take(texts.indices) if is_dictionary else pc.binary_length(texts)
    return pc.sum(lengths).as_py() or 0


def _column(texts: Texts, rows: Int64s) -> Column:
    """Some rows of a column of texts."""
    if not pa.types.is_dictionary(texts.type):
        return Column(texts, rows.astype(np.int32))
    indices = texts.indices
    if indices.null_count:
        return Column(texts.dictionary, indices.take(pa.array(rows)).fill_null(-1).to_numpy())
    return Column(texts.dictionary, indices.to_numpy()[rows])
