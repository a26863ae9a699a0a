"""Decodes records of a commit log to Arrow columns (RocketMQ MessageDecoder), whole buffers at a time.

A night compares them with what is stored, and Spark's data source reads them. The rows of ``commitlog`` come from
:mod:`schemas.messages.commitlog_rows`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from filtering.java.strings import string_array, unchecked_string_array
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.commitlog_walk import Records
from schemas.rocketmq_store.commitlog.crc import body_crcs
from schemas.rocketmq_store.commitlog.hosts import Hosts, host_string, message_ids
from schemas.rocketmq_store.commitlog.record_layout import (
    BODY_CRC,
    BORN_TIMESTAMP,
    FLAG,
    MAGIC_CODE,
    PREPARED_TRANSACTION_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SYS_FLAG,
)
from schemas.rocketmq_store.properties.properties import MAP, Properties


class Columns:
    """The columns of some records. What several columns need is computed once."""

    def __init__(self, records: Records):
        self.records = records
        self.log = records.log

    @cached_property
    def properties(self) -> Properties:
        return Properties(self.records)

    def numbers(self, field: str, shift: int, read: Callable[[gather.Bytes, gather.Positions], np.ndarray]) -> pa.Array:
        """The numbers ``shift`` bytes after a field of the layout."""
        return pa.array(read(self.log, self.records.at(field) + shift))

    def lengths(self, field: str) -> pa.Array:
        return pa.array(self.records.at(field).astype(np.int32))

    def offsets(self) -> gather.Positions:
        return self.records.at("start") + self.records.offset

    def strings(self, field: str) -> pa.StringArray:
        return string_array(*gather.spans(self.log, self.records.at(field), self.records.at(f"{field}_length")))

    def born_host(self) -> pa.StringArray:
        (hosts,) = Hosts(host_string).read(self.log, *self.records.born_hosts())
        return hosts.dictionary_decode()

    def store_host(self) -> pa.StringArray:
        (hosts,) = Hosts(host_string).read(self.log, *self.records.store_hosts())
        return hosts.dictionary_decode()

    def msg_id(self) -> pa.StringArray:
        starts, lengths = self.records.store_hosts()
        bounds = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(2 * lengths + 16, out=bounds[1:])
        ids = message_ids(self.log, starts, lengths, self.offsets(), bounds)
        return unchecked_string_array(bounds, ids)

    def body(self) -> pa.BinaryArray:
        lengths = self.records.at("body_length")
        return gather.binary_array(*gather.spans(self.log, self.records.at("body"), lengths))

    def body_crc_computed(self) -> pa.Array:
        return pa.array(body_crcs(self.log, self.records.at("body"), self.records.at("body_length")))


COLUMNS: dict[str, tuple[pa.DataType, Callable[[Columns], pa.Array]]] = {
    "commitlog_offset": (pa.int64(), lambda c: pa.array(c.offsets())),
    "topic": (pa.string(), lambda c: c.strings("topic")),
    "queue_id": (pa.int32(), lambda c: c.numbers("start", QUEUE_ID, gather.ints)),
    "queue_offset": (pa.int64(), lambda c: c.numbers("start", QUEUE_OFFSET, gather.longs)),
    "store_size": (pa.int32(), lambda c: c.lengths("size")),
    "msg_id": (pa.string(), Columns.msg_id),
    "tags": (pa.string(), lambda c: c.properties.value("TAGS")),
    "keys": (pa.string(), lambda c: c.properties.value("KEYS")),
    "properties": (MAP, lambda c: c.properties.maps()),
    "born_timestamp": (pa.int64(), lambda c: c.numbers("start", BORN_TIMESTAMP, gather.longs)),
    "store_timestamp": (pa.int64(), lambda c: c.numbers("store_timestamp", 0, gather.longs)),
    "sys_flag": (pa.int32(), lambda c: c.numbers("start", SYS_FLAG, gather.ints)),
    "flag": (pa.int32(), lambda c: c.numbers("start", FLAG, gather.ints)),
    "body_crc": (pa.int32(), lambda c: c.numbers("start", BODY_CRC, gather.ints)),
    "reconsume_times": (pa.int32(), lambda c: c.numbers("body", RECONSUME_TIMES, gather.ints)),
    "prepared_transaction_offset": (pa.int64(), lambda c: c.numbers("body", PREPARED_TRANSACTION_OFFSET, gather.longs)),
    "born_host": (pa.string(), Columns.born_host),
    "store_host": (pa.string(), Columns.store_host),
    "magic_code": (pa.int32(), lambda c: c.numbers("start", MAGIC_CODE, gather.ints)),
    "body_length": (pa.int32(), lambda c: c.lengths("body_length")),
    "body_crc_computed": (pa.int32(), Columns.body_crc_computed),
    "body": (pa.binary(), Columns.body),
}

SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
"""All columns. Timestamps are ms since the epoch; commitlog_offset is the record's physical offset; properties is null
if a record has none; body is as stored, and body_crc_computed is the body_crc that it should have."""


def decode(records: Records, columns: Sequence[str]) -> pa.RecordBatch:
    """The given columns of SCHEMA, one row per record. Only these are computed."""
    shared = Columns(records)
    return pa.RecordBatch.from_arrays([COLUMNS[name][1](shared) for name in columns], names=list(columns))
