"""Converts records of a log to rows of the table commitlog, and to messages that filters read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s
from filtering.frozen import frozen
from filtering.java import LONG_MAX, decode_utf8
from filtering.matcher.column import Column
from filtering.time_spans import AFTER_YEAR_9999, DAY
from schemas.arrow_batches import as_one_type, decoded, repeated
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, PROPERTY_COLUMNS, SLOTS
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.commitlog_walk import Records
from schemas.rocketmq_store.message_decoder import Hosts, host_string, msg_id_host
from schemas.rocketmq_store.properties import Interner, Pairs, PropertyColumns, Texts


class Bodies(Enum):
    """The message bodies that commitlog keeps."""

    KEEP = "keep"
    DAMAGED = "damaged"
    NONE = "none"


# Messages in columns, as the filters read them: from a log's bytes, or from rows of commitlog.


Int32s = NDArray[np.int32]
NUMBERS = (
    "queue_id", "queue_offset", "commitlog_offset", "store_size", "store_timestamp", "sys_flag", "body_length",
    "reconsume_times",
)  # fmt: skip
"""The numeric attributes of messages, named as in commitlog. A message log may not know ``body_length``: -1."""


@frozen
class Shape:
    """How the properties of messages of one topic are split: slot i has the property names[i]."""

    topic: str
    names: tuple[str, ...]


@frozen(eq=False)
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
    reconsume_times: Int32s
    named: Mapping[str, Texts]
    slots: Sequence[Texts | None]
    others: pa.StringArray | None

    def __len__(self) -> int:
        return len(self.shape_of)

    def topic_sizes(self) -> Int64s:
        """For each message, the number of messages of its topic."""
        topics, topic_of_shape = self._topics()
        sizes = np.bincount(topic_of_shape[self.shape_of], minlength=len(topics))
        result: Int64s = sizes[topic_of_shape][self.shape_of]
        return result

    def rows_by_topic(self, is_wanted: NDArray[np.bool_]) -> Iterator[tuple[str, Int64s]]:
        """The rows of some messages by topic, in the order of the topics' names, and each in the order of the log."""
        topics, topic_of_shape = self._topics()
        rows = np.flatnonzero(is_wanted)
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

    def may_have(self, name: str) -> bool:
        """Whether messages may have a property. It has no column of its own."""
        if any(name in shape.names for shape in self.shapes):
            return True
        others = self.others
        return others is not None and bool(pc.any(pc.match_substring(others, name)).as_py())

    def properties(self, names: Iterable[str], rows: Int64s) -> dict[str, Column]:
        """Some properties of some messages, by name. Those that no message has may be left out."""
        shape_of = self.shape_of[rows]
        # The shapes are few, so counting is faster than sorting.
        shapes = np.flatnonzero(np.bincount(shape_of, minlength=len(self.shapes)))
        columns = {name: self._property(name, rows, shape_of, shapes) for name in names}
        return {name: column for name, column in columns.items() if column is not None}

    def _property(self, name: str, rows: Int64s, shape_of: Int32s, shapes: Int64s) -> Column | None:
        if name in self.named:
            return _column(self.named[name], rows)
        slot_of = np.full(len(self.shapes), -1, np.int32)
        for shape in shapes.tolist():
            names = self.shapes[shape].names
            slot_of[shape] = names.index(name) if name in names else -1
        other_values = without_slot = None
        if self.others is not None:
            without_slot = np.flatnonzero(slot_of[shape_of] < 0)
            other_values = _values_of(self.others.take(pa.array(rows[without_slot])), name)
        used = sorted({slot for slot in slot_of[shapes].tolist() if slot >= 0 and self.slots[slot] is not None})
        if not used and other_values is None:
            return None
        if len(used) == 1 and other_values is None:
            column = _column(self.slots[used[0]], rows)
            return column if np.all(slot_of[shapes] == used[0]) else column.without(slot_of[shape_of] != used[0])
        texts = [decoded(self.slots[slot]) for slot in used]
        number = np.full(len(self.slots) + 1, -1, np.int64)
        number[used] = np.arange(len(used))
        part = number[slot_of[shape_of]]
        positions = np.where(part < 0, -1, rows + part * len(self)).astype(np.int32)
        if other_values is not None:
            positions[without_slot] = np.arange(len(other_values)) + len(used) * len(self)
            texts.append(other_values)
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
        named={name: pa.concat_arrays(as_one_type([part.named[name] for part in parts])) for name in parts[0].named},
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
    return pa.concat_arrays(as_one_type(filled))


def _values_of(texts: pa.StringArray, name: str) -> pa.StringArray | None:
    """The values of a property in some of ``others``; None if there are none."""
    if texts.null_count == len(texts):
        return None
    values = Pairs.of(texts).value(name)
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


LAST_DATE = AFTER_YEAR_9999 // DAY - 1
"""9999-12-31 in days since the epoch: the last date that every reader of a table supports."""

_ONLY_STORED = ("born_timestamp", "flag", "prepared_transaction_offset", "magic_code")
"""The numbers of records that no filter reads."""


class CommitlogRows:
    """Converts the records of one log, chunk by chunk. ``wanted``: the properties that filters read, by topic."""

    def __init__(self, run: str, bodies: Bodies, wanted: Mapping[str, Sequence[str]]) -> None:
        self._run = run
        self._bodies = bodies
        self._topic_numbers = Interner()
        self._topics: list[str] = []
        self._born_hosts = Hosts(host_string)
        self._store_hosts = Hosts(host_string, msg_id_host)
        self._properties = PropertyColumns(PROPERTY_COLUMNS, list(NAMED_PROPERTIES), wanted)

    def rows(self, records: Records) -> tuple[pa.RecordBatch, Messages]:
        """Rows in the order of the log, and the same messages for the filters."""
        log, topics = records.log, self._topics
        topic_codes = self._topic_numbers.numbers(log, records.at("topic"), records.at("topic_length"))
        assert topic_codes is not None
        new_topics = record_layout.binary_array(*self._topic_numbers.texts(len(topics)))
        topics += (decode_utf8(topic) for topic in new_topics.to_pylist())
        texts = log, records.at("properties"), records.at("properties_length")
        columns, others = self._properties.cut(*texts, topic_codes, topics)
        nulls, count = pa.nulls(len(records), pa.string()), len(NAMED_PROPERTIES)
        named = [nulls if column is None else column for column in columns[:count]]
        shapes = [Shape(topic, self._properties.names(code)) for code, topic in enumerate(topics)]
        messages = Messages(
            [Shape(shape.topic, shape.names[count:]) for shape in shapes],
            topic_codes,
            records.numbers("queue_id"),
            records.numbers("queue_offset"),
            records.physical_offsets(),
            records.at("size").astype(np.int32),
            records.numbers("store_timestamp"),
            records.numbers("sys_flag"),
            records.at("body_length").astype(np.int32),
            records.numbers("reconsume_times"),
            dict(zip(NAMED_PROPERTIES, named, strict=True)),
            columns[count:],
            others,
        )
        return COMMITLOG.batch(self._table_columns(records, messages), len(records)), messages

    def _table_columns(self, records: Records, messages: Messages) -> dict[str, pa.Array]:
        topics = pa.array([shape.topic for shape in messages.shapes], pa.string())
        names = pa.array([NAME_SEPARATOR.join(shape.names) for shape in messages.shapes], pa.string())
        has_no_properties = records.at("properties_length") == 0
        store_hosts, msg_id_hosts = self._store_hosts.read(records.log, *records.store_hosts())
        (born_hosts,) = self._born_hosts.read(records.log, *records.born_hosts())
        columns = {
            "topic": pa.DictionaryArray.from_arrays(messages.shape_of, topics),
            "property_names": pa.DictionaryArray.from_arrays(
                pa.array(messages.shape_of, mask=has_no_properties if has_no_properties.any() else None), names
            ),
            "born_host": born_hosts,
            "store_host": store_hosts,
            "msg_id_host": msg_id_hosts,
            "store_date": store_dates(messages.store_timestamp),
            "run": repeated(self._run, len(records)),
        }
        columns |= {name: pa.array(getattr(messages, name)) for name in NUMBERS}
        columns |= {name: pa.array(records.numbers(name)) for name in _ONLY_STORED}
        columns |= {column: messages.named[name] for name, column in NAMED_PROPERTIES.items()}
        columns |= {name: slot for name, slot in zip(SLOTS, messages.slots, strict=True) if slot is not None}
        if messages.others is not None:
            columns["more_properties"] = messages.others
        return columns | self._body_columns(records)

    def _body_columns(self, records: Records) -> dict[str, pa.Array]:
        log, bodies, lengths = records.log, records.at("body"), records.at("body_length")
        claimed = records.numbers("body_crc")
        is_damaged = records.body_crcs() != claimed
        columns = {"body_is_damaged": pa.array(is_damaged)}
        if self._bodies is Bodies.KEEP:
            # The CRC is that of the body in the same row, unless the body is damaged.
            columns["body_crc"] = pa.array(claimed, mask=~is_damaged)
            columns["body"] = record_layout.binary_array(*record_layout.spans(log, bodies, lengths))
            return columns
        columns["body_crc"] = pa.array(claimed)
        if self._bodies is Bodies.DAMAGED and is_damaged.any():
            kept = np.where(is_damaged, lengths, 0)
            columns["body"] = record_layout.binary_array(*record_layout.spans(log, bodies, kept), missing=~is_damaged)
        return columns


def store_dates(store_timestamps: NDArray[np.int64]) -> pa.Date32Array:
    """The UTC days of times in ms. Times beyond the calendar get its first or last day."""
    first, last = _days(np.array([store_timestamps.min(initial=LONG_MAX), store_timestamps.max(initial=0)]))
    days = np.full(len(store_timestamps), first) if first == last else _days(store_timestamps)
    return pa.array(days).cast(pa.date32())


def _days(times: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.clip(times // DAY, 0, LAST_DATE).astype(np.int32)


# Batches with enough messages of a topic: filtering messages of a topic has a fixed cost.


MESSAGES_AT_ONCE = 1 << 16
"""Messages that are filtered together. More exceed the processor's cache; fewer repeat the fixed cost of a batch."""
ENOUGH_OF_A_TOPIC = 1 << 12
"""Filtering so many messages takes much longer than the fixed cost of a topic, which is about 1 ms."""
MOST_WAITING = 1 << 19
"""If more messages wait, all are filtered: they need 50 to 200 bytes each."""
MOST_WAITING_TEXT = 1 << 28
"""If the properties of waiting messages have more bytes, all are filtered: a column has room for less than 2 GiB."""


class TopicBatch(NamedTuple):
    """The messages to filter now are those that ``is_due`` selects; the others wait for more of their topics."""

    messages: Messages
    is_due: NDArray[np.bool_]


class TopicBatches:
    """Collects messages. The messages of each topic stay in the order in which they were added."""

    def __init__(self) -> None:
        self._waiting: list[Messages] = []
        self._new = 0

    def add(self, messages: Messages) -> TopicBatch | None:
        """Adds messages. A batch follows as soon as MESSAGES_AT_ONCE were added; it may be empty."""
        self._waiting.append(messages)
        self._new += len(messages)
        return self._batch() if self._new >= MESSAGES_AT_ONCE else None

    def rest(self) -> TopicBatch | None:
        """All messages that wait; None if there are none."""
        if not self._waiting:
            return None
        messages, self._waiting, self._new = concat(self._waiting), [], 0
        return TopicBatch(messages, np.ones(len(messages), bool))

    def _batch(self) -> TopicBatch:
        messages, self._waiting, self._new = concat(self._waiting), [], 0
        is_enough = messages.topic_sizes() >= ENOUGH_OF_A_TOPIC
        waiting = np.flatnonzero(~is_enough)
        if not len(waiting):
            return TopicBatch(messages, is_enough)
        rest = messages.take(waiting)
        if len(rest) > MOST_WAITING or rest.text_bytes() > MOST_WAITING_TEXT:
            return TopicBatch(messages, np.ones(len(messages), bool))
        self._waiting = [rest]
        return TopicBatch(messages, is_enough)


def topic_batches(parts: Iterable[Messages]) -> Iterator[TopicBatch]:
    """The same messages in batches."""
    batches = TopicBatches()
    for part in parts:
        batch = batches.add(part)
        if batch is not None:
            yield batch
    rest = batches.rest()
    if rest is not None:
        yield rest
