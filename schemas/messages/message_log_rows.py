"""Messages of a message log as columns, and their rows of the table commitlog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.frozen import frozen
from schemas.arrow_batches import decoded, repeated
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, PROPERTY_COLUMNS, SLOTS
from schemas.messages.commitlog_rows import Bodies, store_dates
from schemas.messages.message_checks import KNOWN
from schemas.rocketmq_store.commitlog_walk import body_crcs
from schemas.rocketmq_store.properties import PropertyColumns, Texts
from schemas.rocketmq_store.record_layout import Bytes

_SAME = (
    "commitlog_offset", "queue_id", "queue_offset", "store_size", "born_timestamp", "store_timestamp", "sys_flag",
    "flag", "reconsume_times", "prepared_transaction_offset", "born_host", "store_host", "msg_id", "magic_code",
    "body_length",
)  # fmt: skip
_MARGIN = 16
"""Zero bytes after property texts, which loops may read."""


@frozen(eq=False)
class MessageBatch:
    """n messages of a message log.

    ``lines``: the numbers of their lines or rows, of which ``bytes_of`` returns the bytes. ``columns``: those of KNOWN
    that some message has, but not the properties. Message i has the property text (name 0x01 value 0x02 …) that begins
    at ``starts[i]`` of ``texts`` and has ``lengths[i]`` bytes.
    """

    lines: NDArray[np.int64]
    columns: Mapping[str, pa.Array]
    texts: Bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    bytes_of: Callable[[int], bytes]

    @classmethod
    def of(
        cls, lines: NDArray[np.int64], messages: Sequence[Mapping[str, Any]], bytes_of: Callable[[int], bytes]
    ) -> MessageBatch:
        """Messages with all columns of KNOWN, of which the properties are dictionaries, or None."""
        columns = {}
        for name in KNOWN:
            if name != "properties":
                kind = pa.binary() if KNOWN[name] == "binary" else COMMITLOG.schema.field(name).type
                columns[name] = pa.array([message[name] for message in messages], kind)
        texts = [
            "".join(f"{name}\u0001{value}\u0002" for name, value in (message["properties"] or {}).items()).encode()
            for message in messages
        ]
        lengths = np.array(list(map(len, texts)), np.int64)
        joined = np.frombuffer(b"".join(texts) + bytes(_MARGIN), np.uint8)
        return cls(lines, columns, joined, np.cumsum(lengths) - lengths, lengths, bytes_of)

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str) -> NDArray[np.int64]:
        """A column of integers that all messages have."""
        return self.columns[name].cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]  # PyArrow has no types

    def with_columns(self, columns: Mapping[str, pa.Array]) -> MessageBatch:
        """The same messages with some columns replaced."""
        return replace(self, columns={**self.columns, **columns})

    def take(self, rows: NDArray[np.int64]) -> MessageBatch:
        """Some of the messages, by their row numbers."""
        wanted = pa.array(rows)
        return replace(
            self,
            lines=self.lines[rows],
            columns={name: column.take(wanted) for name, column in self.columns.items()},
            starts=self.starts[rows],
            lengths=self.lengths[rows],
        )

    def topics(self) -> tuple[NDArray[np.int32], list[str]]:
        """The topic of each message, as a number, and the topics."""
        topics = self.columns["topic"]
        if not pa.types.is_dictionary(topics.type):
            topics = topics.dictionary_encode()
        return topics.indices.to_numpy().astype(np.int32), topics.dictionary.to_pylist()


class MessageLogRows:
    """Converts batches of messages. A property name of a topic keeps its column from batch to batch."""

    def __init__(self, run: str, bodies: Bodies) -> None:
        self._run = run
        self._bodies = bodies
        self._topics: dict[str, int] = {}
        self._properties = PropertyColumns(PROPERTY_COLUMNS, list(NAMED_PROPERTIES), {})

    def rows(self, batch: MessageBatch) -> pa.RecordBatch:
        """Rows of commitlog in the order of the messages, which have all of POSITION.

        Without tags or keys, those are TAGS and KEYS of the properties. A body is damaged if it does not match its
        body_crc. If only its text is known, that cannot be said.
        """
        count = len(batch)
        columns = {name: batch.columns[name] for name in _SAME if name in batch.columns}
        if "store_timestamp" not in columns:
            columns["store_timestamp"] = columns["born_timestamp"]
        elif columns["store_timestamp"].null_count:
            columns["store_timestamp"] = pc.coalesce(columns["store_timestamp"], columns["born_timestamp"])
        sizes = columns.get("store_size", pa.nulls(count, pa.int32()))
        columns["store_size"] = sizes.fill_null(1) if sizes.null_count else sizes
        columns |= self._property_columns(batch) | self._body_columns(batch)
        columns["store_date"] = store_dates(columns["store_timestamp"].to_numpy())
        columns["run"] = repeated(self._run, count)
        return COMMITLOG.batch(columns, count)

    def _property_columns(self, batch: MessageBatch) -> dict[str, pa.Array]:
        topics, names = batch.topics()
        numbers = np.array([self._topics.setdefault(name, len(self._topics)) for name in names], np.int32)
        topic_of = numbers[topics] if len(names) else topics
        known = list(self._topics)
        cut, others = self._properties.cut(batch.texts, batch.starts, batch.lengths, topic_of, known)
        named = len(NAMED_PROPERTIES)
        columns: dict[str, pa.Array] = {
            name: column for name, column in zip((*NAMED_PROPERTIES.values(), *SLOTS), cut, strict=True)
            if column is not None
        }  # fmt: skip
        has_no_properties = batch.lengths == 0
        for name in ("tags", "keys"):
            given = batch.columns.get(name)
            if given is not None and given.null_count < len(given):
                has_no_properties &= given.is_null().to_numpy(zero_copy_only=False)
                columns[name] = _first_of(given, columns.get(name))
        if others is not None:
            columns["more_properties"] = others
        columns["topic"] = pa.DictionaryArray.from_arrays(pa.array(topic_of), pa.array(known, pa.string()))
        slot_names = [NAME_SEPARATOR.join(self._properties.names(code)[named:]) for code in range(len(known))]
        columns["property_names"] = pa.DictionaryArray.from_arrays(
            pa.array(topic_of, mask=has_no_properties if has_no_properties.any() else None),
            pa.array(slot_names, pa.string()),
        )
        return columns

    def _body_columns(self, batch: MessageBatch) -> dict[str, pa.Array]:
        count = len(batch)
        no_body = pa.nulls(count, pa.binary())
        stored, text = batch.columns.get("body", no_body), batch.columns.get("message_body", no_body)
        claimed = batch.columns.get("body_crc", pa.nulls(count, pa.int32()))
        computed = _crcs(stored)
        is_damaged = pc.not_equal(claimed, computed).fill_null(False)
        body = pc.coalesce(stored, text) if text.null_count < count else stored
        columns = {"body_is_damaged": is_damaged, "body_crc": claimed, "body": body}
        if self._bodies is not Bodies.KEEP:
            columns["body_crc"] = pc.coalesce(claimed, computed)
            kept = is_damaged if self._bodies is Bodies.DAMAGED else pa.scalar(False)
            columns["body"] = pc.if_else(kept, body, pa.scalar(None, pa.binary()))
        return columns


def _first_of(given: Texts, other: Texts | None) -> Texts:
    """The ``given`` texts, and the ``other`` ones where they are null."""
    if given.null_count == 0 or other is None:
        return given
    return pc.coalesce(decoded(given), decoded(other))


def _crcs(bodies: pa.BinaryArray) -> pa.Int32Array:
    if bodies.null_count == len(bodies):
        return pa.nulls(len(bodies), pa.int32())
    _, offsets, data = bodies.buffers()
    bounds = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)
    octets = np.frombuffer(data if data is not None else b"", np.uint8)
    octets.flags.writeable = False  # as the bytes of a log: the same compiled loop reads both
    crcs = body_crcs(octets, bounds[:-1], np.diff(bounds))
    return pa.array(crcs, mask=bodies.is_null().to_numpy(zero_copy_only=False))
