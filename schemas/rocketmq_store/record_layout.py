"""Finds the fields of commit log records without copying them (RocketMQ MessageDecoder, MessageExtEncoder).

A record is big-endian: size i32, magic i32, bodyCRC i32, queueId i32, flag i32, queueOffset i64,
physicalOffset i64, sysFlag i32, bornTimestamp i64, bornHost, storeTimestamp i64, storeHost, reconsumeTimes i32,
preparedTransactionOffset i64, body (i32 length), topic (u8 length, in V2 i16), properties (i16 length).
A host is 4 bytes of address, or 16 if sysFlag says so, and an i32 port.

In the log of a broker with ``enableDLegerCommitLog``, a header of 48 bytes stands before each record: magic i32 (1),
size i32 (of header and record), index i64, term i64, pos i64, channel i32, chainCrc i32, bodyCrc i32, bodySize i32
(DLedgerEntryCoder). The physical offset of a record is that of its first byte, after the header.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.broker_config import CONSUME_QUEUE_UNIT
from filtering.java import LONG_MAX, string_array
from filtering.kernels.compile import Int, compiled
from filtering.kernels.registers import EACH_OCTET, HIGH_BITS, load_word
from schemas.rocketmq_store.segments import SLACK

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124
DLEDGER_HEADER = 48
"""Bytes of DLedger's header."""
DLEDGER_MAGIC, DLEDGER_BLANK = 1, -1
"""The first i32 of DLedger's header, and of the filler that ends its file; the second is the size."""

MAGIC_CODE, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG, BORN_HOST = 4, 20, 28, 36, 48
"""Where fields are, in bytes from the start of a record."""
RECONSUME_TIMES = -16
"""Where the field is, in bytes from the body of a record: the hosts before it have no fixed length."""
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20
LONGEST = 64 << 20
"""Bytes of the longest record that is read: RocketMQ's own network frames end at 16 MiB."""
GREATEST_QUEUE_OFFSET = LONG_MAX // CONSUME_QUEUE_UNIT - 1
"""The queue offset of the last entry that a consume queue can hold: positions in it have 64 bits."""


class BytesKind(IntEnum):
    """The kind of bytes at a position of a segment file.

    FILLER ends a segment whose next record did not fit. ZEROS were never written. INCOMPLETE bytes may become a record
    when the broker writes on. The broker's decoder cannot read the others.
    """

    RECORD = 0
    FILLER = 1
    ZEROS = 2
    INCOMPLETE = 3
    ILLEGAL_MAGIC = 4
    INCONSISTENT = 5
    ILLEGAL_PORT = 6
    TOO_LONG = 7
    ILLEGAL_QUEUE_OFFSET = 8


# Numba takes an IntEnum for another type than an int.
RECORD, FILLER, ZEROS, INCOMPLETE, ILLEGAL_MAGIC, INCONSISTENT, ILLEGAL_PORT, _, ILLEGAL_QUEUE_OFFSET = map(
    int, BytesKind
)

FIELDS = (
    "start", "size", "store_timestamp", "store_host", "body", "body_length", "topic", "topic_length", "properties",
    "properties_length",
)  # fmt: skip
"""The fields of a record whose places, or lengths, a layout has."""
NUMBER_FIELDS = {
    "magic_code": ("start", MAGIC_CODE, np.int32),
    "body_crc": ("start", 8, np.int32),
    "queue_id": ("start", 12, np.int32),
    "flag": ("start", 16, np.int32),
    "queue_offset": ("start", QUEUE_OFFSET, np.int64),
    "physical_offset": ("start", PHYSICAL_OFFSET, np.int64),
    "sys_flag": ("start", SYS_FLAG, np.int32),
    "born_timestamp": ("start", 40, np.int64),
    "store_timestamp": ("store_timestamp", 0, np.int64),
    "reconsume_times": ("body", RECONSUME_TIMES, np.int32),
    "prepared_transaction_offset": ("body", -12, np.int64),
}
"""The numbers in a record: how many bytes after one of FIELDS, and their type."""


@compiled
def int_at(log: NDArray[np.uint8], at: int) -> int:
    """The i32 at a position."""
    i = np.uint64(at)  # an unsigned index: no check for a negative one, so the four bytes are loaded as one
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    value = log[i] << 24 | log[i + one] << 16 | log[i + two] << 8 | log[i + three]
    return int(np.int64(np.int32(value)))


@compiled
def short_at(log: NDArray[np.uint8], at: int) -> int:
    """The i16 at a position."""
    i = np.uint64(at)
    return int(np.int64(np.int16(log[i] << 8 | log[i + np.uint64(1)])))


@compiled
def inspect(log: NDArray[np.uint8], start: int, layout: NDArray[np.int64], row: int) -> int:
    """The kind of bytes at ``start``. A whole, decodable record fills column ``row`` of ``layout`` (FIELDS x rows)."""
    remaining = len(log) - start
    if remaining < 8:
        return INCOMPLETE
    size = int_at(log, start)
    magic = int_at(log, start + MAGIC_CODE)
    if magic == MAGIC_BLANK:
        return FILLER if size >= remaining else INCONSISTENT
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ZEROS if size == 0 and magic == 0 else ILLEGAL_MAGIC
    if size > remaining:
        return INCOMPLETE
    end = start + size
    if end < start + BORN_HOST:
        return INCONSISTENT
    sys_flag = int_at(log, start + SYS_FLAG)
    born_port = start + BORN_HOST + (16 if sys_flag & BORN_HOST_V6 else 4)
    store_host = born_port + 4 + 8
    store_port = store_host + (16 if sys_flag & STORE_HOST_V6 else 4)
    body = store_port + 4 + 4 + 8 + 4
    if body > end:
        return INCONSISTENT
    body_length = max(0, int_at(log, body - 4))
    topic_width = 1 if magic == MAGIC_V1 else 2
    topic = body + body_length + topic_width
    if topic > end:
        return INCONSISTENT
    topic_length = int(np.int64(np.int8(log[topic - 1]))) if topic_width == 1 else short_at(log, topic - 2)
    properties = topic + topic_length + 2
    if topic_length < 0 or properties > end:
        return INCONSISTENT
    properties_length = max(0, short_at(log, properties - 2))
    if properties + properties_length != end:
        return INCONSISTENT
    # Java's InetSocketAddress takes no other port, so RocketMQ's own decoder fails.
    if not (0 <= int_at(log, born_port) <= 65535 and 0 <= int_at(log, store_port) <= 65535):
        return ILLEGAL_PORT
    queue_offset = int_at(log, start + QUEUE_OFFSET) << 32 | int_at(log, start + QUEUE_OFFSET + 4) & 0xFFFFFFFF
    if not 0 <= queue_offset <= GREATEST_QUEUE_OFFSET:
        return ILLEGAL_QUEUE_OFFSET
    layout[0, row] = start
    layout[1, row] = size
    layout[2, row] = store_host - 8
    layout[3, row] = store_host
    layout[4, row] = body
    layout[5, row] = body_length
    layout[6, row] = topic
    layout[7, row] = topic_length
    layout[8, row] = properties
    layout[9, row] = properties_length
    return RECORD


@compiled
def header_at(log: NDArray[np.uint8], at: int) -> Int:
    """DLEDGER_HEADER if such a header stands at a position, with the size of its record; else 0."""
    if len(log) - at < DLEDGER_HEADER + 4 or int_at(log, at) != DLEDGER_MAGIC:
        return 0
    size = int_at(log, at + DLEDGER_HEADER)
    fits = int_at(log, at + 4) == size + DLEDGER_HEADER and int_at(log, at + DLEDGER_HEADER - 4) == size
    return DLEDGER_HEADER if fits else 0


@compiled
def walk(log: NDArray[np.uint8], layout: NDArray[np.int64]) -> Int:
    """Follows the records from the start of ``log`` until ``layout`` is full, or up to other bytes.

    Between them there may be headers of DLedger. Returns the number of records.
    """
    position: Int = np.int64(0)  # For a literal 0, Numba would compile inspect once more.
    rows: Int = np.int64(0)
    while rows < layout.shape[1]:
        if inspect(log, position, layout, rows) != RECORD:
            header = header_at(log, position)
            if not header or inspect(log, position + header, layout, rows) != RECORD:
                return rows
            position += header
        position += int(layout[1, rows])
        rows += 1
    return rows


# Scattered bytes of a buffer as columns: numbers, texts, eight bytes at once.


Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Offsets = NDArray[np.int32]
"""Arrow's offsets: where each text begins in the data, and where the last one ends."""
_TWOS = np.uint64(0x0202020202020202)


@compiled
def store(data: Bytes, at: int, word: np.uint64) -> None:
    """Writes a word as eight bytes from ``at`` on: the reverse of load_word."""
    i = np.uint64(at)
    for j in range(8):
        data[i + np.uint64(j)] = np.uint8(word >> np.uint64(8 * j))


@compiled
def ints(log: Bytes, at: Positions) -> NDArray[np.int32]:
    """The big-endian i32 at each position."""
    out = np.empty(len(at), np.int32)
    for i in range(len(at)):
        out[i] = int_at(log, at[i])
    return out


@compiled
def longs(log: Bytes, at: Positions) -> NDArray[np.int64]:
    """The big-endian i64 at each position."""
    out = np.empty(len(at), np.int64)
    for i in range(len(at)):
        out[i] = int_at(log, at[i]) << 32 | (int_at(log, at[i] + 4) & 0xFFFFFFFF)
    return out


@compiled
def spans(log: Bytes, at: Positions | Offsets, lengths: Positions | Offsets) -> tuple[Offsets, Bytes]:
    """The bytes of each span, one after another: Arrow's offsets (rows + 1) and data, under 2 GiB in all.

    SLACK bytes after the last span may be read.
    """
    offsets = np.zeros(len(at) + 1, np.int32)
    for i in range(len(at)):
        offsets[i + 1] = offsets[i] + lengths[i]
    data = np.empty(offsets[-1] + SLACK, np.uint8)
    for i in range(len(at)):
        source, target = int(at[i]), int(offsets[i])
        for j in range(0, int(lengths[i]), 8):
            store(data, target + j, load_word(log, source + j))
    return offsets, data[: offsets[-1]]


def binary_array(offsets: Offsets, data: Bytes, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Arrow binary over offsets and data, null where ``missing``."""
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def decoded_texts(log: Bytes, at: Positions, lengths: Positions) -> tuple[Bytes, Positions, Positions]:
    """Texts that are not UTF-8, decoded as a whole as in Java: the UTF-8 of all, with the start and length of each."""
    _, offsets, data = string_array(*spans(log, at, lengths)).buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(at) + 1].astype(np.int64)
    return np.frombuffer(bytes(data) + bytes(SLACK), np.uint8), bounds[:-1], np.diff(bounds)


@compiled
def find_two(data: Bytes, start: int, end: int) -> int:
    """The first byte 0x02 from ``start`` on, or ``end``; up to seven bytes after ``end`` are read."""
    at = start
    while at < end:
        different = load_word(data, at) ^ _TWOS
        zeros = (different - EACH_OCTET) & ~different & HIGH_BITS  # the lowest bit set is right, those above may not be
        if zeros:
            return min(end, at + lowest_byte(zeros))
        at += 8
    return end


@compiled
def lowest_byte(word: np.uint64) -> int:
    """The index of the lowest byte of ``word`` whose high bit is set."""
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    return int(np.int64(((below & EACH_OCTET) * EACH_OCTET) >> np.uint64(56))) - 1
