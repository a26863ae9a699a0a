"""Decodes records of a commit log to Arrow columns (RocketMQ MessageDecoder), whole buffers at a time.

A night compares them with what is stored, and Spark's data source reads them. The rows of ``commitlog`` come from
:mod:`schemas.messages.commitlog_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa

from filtering.java.strings import is_utf8, string_array, unchecked_string_array
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.commitlog_walk import Records
from schemas.rocketmq_store.commitlog.hosts import Hosts, host_string, message_ids
from schemas.rocketmq_store.commitlog.record_layout import NUMBER_FIELDS
from schemas.rocketmq_store.properties.property_text import find, split

MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("commitlog_offset", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("store_size", pa.int32()),
        ("msg_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("properties", MAP),
        ("born_timestamp", pa.int64()),
        ("store_timestamp", pa.int64()),
        ("sys_flag", pa.int32()),
        ("flag", pa.int32()),
        ("body_crc", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("magic_code", pa.int32()),
        ("body_length", pa.int32()),
        ("body_crc_computed", pa.int32()),
        ("body", pa.binary()),
    ]
)
"""All columns. Timestamps are ms since the epoch; commitlog_offset is the record's physical offset; properties is null
if a record has none; body is as stored, and body_crc_computed is the body_crc that it should have."""


def decode(records: Records, columns: Sequence[str]) -> pa.RecordBatch:
    """The given columns of SCHEMA, one row per record. Only these are computed."""
    log, at = records.log, records.at
    properties = cache(partial(_Properties, records))
    computed: dict[str, Callable[[], pa.Array]] = {
        "commitlog_offset": lambda: pa.array(records.physical_offsets()),
        "topic": lambda: string_array(*gather.spans(log, at("topic"), at("topic_length"))),
        "store_size": lambda: pa.array(at("size").astype(np.int32)),
        "msg_id": lambda: _msg_ids(records),
        "tags": lambda: properties().value("TAGS"),
        "keys": lambda: properties().value("KEYS"),
        "properties": lambda: properties().maps(),
        "born_host": lambda: Hosts(host_string).read(log, *records.born_hosts())[0].dictionary_decode(),
        "store_host": lambda: Hosts(host_string).read(log, *records.store_hosts())[0].dictionary_decode(),
        "body_length": lambda: pa.array(at("body_length").astype(np.int32)),
        "body_crc_computed": lambda: pa.array(records.body_crcs()),
        "body": lambda: gather.binary_array(*gather.spans(log, at("body"), at("body_length"))),
    }
    arrays = [pa.array(records.numbers(name)) if name in NUMBER_FIELDS else computed[name]() for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _msg_ids(records: Records) -> pa.StringArray:
    starts, lengths = records.store_hosts()
    bounds = np.append(np.int32(0), np.cumsum(2 * lengths + 16, dtype=np.int32))
    ids = message_ids(records.log, starts, lengths, records.physical_offsets(), bounds)
    return unchecked_string_array(bounds, ids)


class _Properties:
    """The properties of some records as pairs: one map for each record."""

    def __init__(self, records: Records):
        lengths = records.at("properties_length")
        self._missing = lengths == 0
        self._split(records.log, records.at("properties"), lengths)
        if not (is_utf8(self._key_ends, self._keys) and is_utf8(self._value_ends, self._values)):
            self._split(*gather.decoded_texts(records.log, records.at("properties"), lengths))

    def _split(self, log: gather.Bytes, starts: gather.Positions, lengths: gather.Positions) -> None:
        self._pairs, self._key_ends, self._keys, self._value_ends, self._values = split(log, starts, lengths)

    def maps(self) -> pa.MapArray:
        """map<string, string>, null if a record has no properties."""
        keys = unchecked_string_array(self._key_ends, self._keys)
        values = unchecked_string_array(self._value_ends, self._values)
        entries = pa.StructArray.from_arrays([keys, values], fields=[MAP.key_field, MAP.item_field])
        buffers = [pa.array(~self._missing).buffers()[1], pa.py_buffer(self._pairs)]
        return pa.Array.from_buffers(MAP, len(self._missing), buffers, children=[entries])

    def value(self, name: str) -> pa.StringArray:
        """The values of one property, null if it is missing."""
        key = np.frombuffer(name.encode(), np.uint8)
        starts, lengths, missing = find(self._pairs, self._key_ends, self._keys, self._value_ends, key)
        return unchecked_string_array(*gather.spans(self._values, starts, lengths), missing)
