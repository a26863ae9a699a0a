"""Converts records of a log to rows of the table commitlog, and to messages that filters read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java.numbers import LONG_MAX
from filtering.java.strings import decode_utf8
from filtering.time_spans import AFTER_YEAR_9999, DAY
from schemas.arrow_batches import repeated
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, PROPERTY_COLUMNS, SLOTS
from schemas.messages.bodies import Bodies
from schemas.messages.columns import NUMBERS, Messages, Shape
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.commitlog_walk import Records
from schemas.rocketmq_store.commitlog.hosts import Hosts, host_string, msg_id_host
from schemas.rocketmq_store.properties.interning import Interner
from schemas.rocketmq_store.properties.property_columns import PropertyColumns

LAST_DATE = AFTER_YEAR_9999 // DAY - 1
"""9999-12-31 in days since the epoch: the last date that every reader of a table supports."""

_ONLY_STORED = ("born_timestamp", "flag", "reconsume_times", "prepared_transaction_offset", "magic_code")
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
        new_topics = gather.binary_array(*self._topic_numbers.texts(len(topics)))
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
            columns["body"] = gather.binary_array(*gather.spans(log, bodies, lengths))
            return columns
        columns["body_crc"] = pa.array(claimed)
        if self._bodies is Bodies.DAMAGED and is_damaged.any():
            kept = np.where(is_damaged, lengths, 0)
            columns["body"] = gather.binary_array(*gather.spans(log, bodies, kept), missing=~is_damaged)
        return columns


def store_dates(store_timestamps: NDArray[np.int64]) -> pa.Date32Array:
    """The UTC days of times in ms. Times beyond the calendar get its first or last day."""
    first, last = _days(np.array([store_timestamps.min(initial=LONG_MAX), store_timestamps.max(initial=0)]))
    days = np.full(len(store_timestamps), first) if first == last else _days(store_timestamps)
    return pa.array(days).cast(pa.date32())


def _days(times: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.clip(times // DAY, 0, LAST_DATE).astype(np.int32)
