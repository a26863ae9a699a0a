"""Where the fields of a commit log record lie, found without copying (RocketMQ MessageDecoder, MessageExtEncoder).

A record is big-endian: size i32, magic i32, bodyCRC i32, queueId i32, flag i32, queueOffset i64,
physicalOffset i64, sysFlag i32, bornTimestamp i64, bornHost, storeTimestamp i64, storeHost, reconsumeTimes i32,
preparedTransactionOffset i64, body (i32 length), topic (u8 length, in V2 i16), properties (i16 length).
A host is 4 bytes of address, or 16 where sysFlag says so, and an i32 port.
"""

from enum import IntEnum

import numpy as np
from numba import njit
from numpy.typing import NDArray

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124

PHYSICAL_OFFSET, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST = 28, 36, 40, 48
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20


class Found(IntEnum):
    """What lies at a position of a segment file."""

    RECORD = 0
    BUDGET = 1
    FILLER = 2
    ZEROS = 3
    INCOMPLETE = 4
    ILLEGAL_MAGIC = 5
    INCONSISTENT = 6
    ILLEGAL_PORT = 7


RECORD, BUDGET, FILLER, ZEROS, INCOMPLETE, ILLEGAL_MAGIC, INCONSISTENT, ILLEGAL_PORT = map(int, Found)

FIELDS = (
    "start",
    "size",
    "store_timestamp",
    "store_host",
    "body",
    "body_length",
    "topic",
    "topic_length",
    "properties",
    "properties_length",
)


@njit(cache=True)
def int_at(log: NDArray[np.uint8], at: int) -> int:
    """The i32 at a position."""
    signed = np.int32(
        np.uint32(log[at]) << np.uint32(24)
        | np.uint32(log[at + 1]) << np.uint32(16)
        | np.uint32(log[at + 2]) << np.uint32(8)
        | np.uint32(log[at + 3])
    )
    return int(np.int64(signed))


@njit(cache=True)
def short_at(log: NDArray[np.uint8], at: int) -> int:
    """The i16 at a position."""
    return int(np.int64(np.int16(np.uint16(log[at]) << np.uint16(8) | np.uint16(log[at + 1]))))


@njit(cache=True)
def inspect(log: NDArray[np.uint8], start: int, layout: NDArray[np.int64], row: int) -> int:
    """What lies at ``start``; of a whole and decodable record, the layout (FIELDS x row) too."""
    remaining = len(log) - start
    if remaining < 8:
        return INCOMPLETE
    size = int_at(log, start)
    magic = int_at(log, start + 4)
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


@njit(cache=True)
def walk(log: NDArray[np.uint8], start: int, budget: int, layout: NDArray[np.int64]) -> tuple[int, int, int]:
    """Follow records from ``start`` until ``layout`` is full or ``budget`` bytes are passed, or to anything else.

    Returns the rows filled, the position reached, and what lies there (BUDGET: stopped on purpose).
    """
    position = start
    rows = 0
    while rows < layout.shape[1] and position - start < budget:
        if position == len(log):
            return rows, position, FILLER
        found = inspect(log, position, layout, rows)
        if found != RECORD:
            return rows, position, found
        position += int(layout[1, rows])
        rows += 1
    return rows, position, BUDGET
