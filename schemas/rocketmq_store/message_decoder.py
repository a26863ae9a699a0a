"""Decodes records of a commit log to Arrow columns (RocketMQ MessageDecoder), whole buffers at a time.

A night compares them with what is stored, and Spark's data source reads them. The rows of ``commitlog`` come from
:mod:`schemas.messages.commitlog_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.java import string_array
from schemas.rocketmq_store.commitlog_walk import Records
from schemas.rocketmq_store.properties import Interner, Pairs
from schemas.rocketmq_store.record_layout import (
    NUMBER_FIELDS,
    STORE_HOST_V6,
    Bytes,
    Positions,
    binary_array,
    decoded_texts,
    spans,
)

# Hosts: 4 or 16 bytes of address and an i32 port, as RocketMQ prints them.


IPV4_MAPPED = b"\0" * 10 + b"\xff\xff"


class Hosts:
    """Reads hosts from the chunks of a log. ``texts_of`` are functions from the bytes of a host to a text."""

    def __init__(self, *texts_of: Callable[[bytes], str]) -> None:
        self._texts_of = texts_of
        self._interner = Interner()
        self._known = 0
        self._texts = [pa.array([], pa.string()) for _ in texts_of]

    def read(self, log: Bytes, at: Positions, lengths: Positions) -> list[pa.DictionaryArray]:
        """The texts of the host at each position, a column for each function."""
        numbers = self._interner.numbers(log, at, lengths)
        if self._interner.count > self._known:
            hosts = binary_array(*self._interner.texts(self._known)).to_pylist()
            self._texts = [
                pa.concat_arrays([known, pa.array(map(text_of, hosts), pa.string())])
                for known, text_of in zip(self._texts, self._texts_of, strict=True)
            ]
            self._known = self._interner.count
        return [pa.DictionaryArray.from_arrays(numbers, texts, safe=False) for texts in self._texts]


def host_string(host: bytes) -> str:
    """``127.0.0.1:10911``, ``2001:db8:0:0:0:0:0:1:10911``: Java's InetAddress.getHostAddress, and the port."""
    address, port = _java_address(host[:-4]), int.from_bytes(host[-4:], "big")
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = (int.from_bytes(address[i : i + 2], "big") for i in range(0, 16, 2))
    return f"{':'.join(f'{group:x}' for group in groups)}:{port}"


def msg_id_host(host: bytes) -> str:
    """The first part of a msgId: address and port in upper-case hex (MessageDecoder.createMessageId)."""
    return (_java_address(host[:-4]) + host[-4:]).hex().upper()


def _java_address(address: bytes) -> bytes:
    """The address after Java's InetAddress.getByAddress, which turns an IPv4-mapped address into an IPv4 one."""
    return address[12:] if address.startswith(IPV4_MAPPED) and len(address) == 16 else address


def message_ids(
    hosts: pa.Array | pa.ChunkedArray, offsets: NDArray[np.int64], sys_flags: NDArray[np.int32]
) -> pa.Array | pa.ChunkedArray:
    """The msgId of each message by its msg_id_host and physical offset (MessageDecoder.createMessageId).

    RocketMQ leaves zeros behind an IPv4 address in the place of an IPv6 one.
    """
    digits = offsets.astype(">i8").tobytes().hex().upper().encode()
    ends = np.arange(0, len(digits) + 1, 16, dtype=np.int32)
    texts = pa.Array.from_buffers(pa.string(), len(offsets), [None, pa.py_buffer(ends), pa.py_buffer(digits)])
    ids = pc.binary_join_element_wise(hosts.cast(pa.string()), texts, "")
    is_v6 = sys_flags & STORE_HOST_V6 != 0
    return pc.if_else(pa.array(is_v6), pc.ascii_rpad(ids, 56, "0"), ids) if is_v6.any() else ids


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
    pairs = cache(partial(_pairs, records))
    computed: dict[str, Callable[[], pa.Array]] = {
        "commitlog_offset": lambda: pa.array(records.physical_offsets()),
        "topic": lambda: string_array(*spans(log, at("topic"), at("topic_length"))),
        "store_size": lambda: pa.array(at("size").astype(np.int32)),
        "msg_id": lambda: _msg_ids(records),
        "tags": lambda: pairs().value("TAGS"),
        "keys": lambda: pairs().value("KEYS"),
        "properties": lambda: _maps(pairs(), at("properties_length") == 0),
        "born_host": lambda: Hosts(host_string).read(log, *records.born_hosts())[0].dictionary_decode(),
        "store_host": lambda: Hosts(host_string).read(log, *records.store_hosts())[0].dictionary_decode(),
        "body_length": lambda: pa.array(at("body_length").astype(np.int32)),
        "body_crc_computed": lambda: pa.array(records.body_crcs()),
        "body": lambda: binary_array(*spans(log, at("body"), at("body_length"))),
    }
    arrays = [pa.array(records.numbers(name)) if name in NUMBER_FIELDS else computed[name]() for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _msg_ids(records: Records) -> pa.StringArray:
    (hosts,) = Hosts(msg_id_host).read(records.log, *records.store_hosts())
    return message_ids(hosts, records.physical_offsets(), records.numbers("sys_flag"))


def _pairs(records: Records) -> Pairs:
    texts = records.log, records.at("properties"), records.at("properties_length")
    pairs = Pairs.cut(*texts) or Pairs.cut(*decoded_texts(*texts))
    assert pairs is not None
    return pairs


def _maps(pairs: Pairs, missing: NDArray[np.bool_]) -> pa.MapArray:
    """map<string, string> for each record, null if it has no properties."""
    entries = pa.StructArray.from_arrays([pairs.names, pairs.values], fields=[MAP.key_field, MAP.item_field])
    buffers = [pa.array(~missing).buffers()[1], pa.py_buffer(pairs.ends)]
    return pa.Array.from_buffers(MAP, len(missing), buffers, children=[entries])
