"""Makes commitlog records as a broker writes them."""

import struct
import zlib
from collections.abc import Mapping
from typing import Any

from filtering.tags_code import java_hash

V1, V2, BLANK = -626843481, -626843477, -875286124


def record(
    at: int,
    *,
    body: bytes = b"paid",
    topic: bytes = b"OrderEvents",
    properties: bytes = b"",
    sys_flag: int = 0,
    magic: int = V1,
    born_host: bytes = bytes([10, 0, 0, 1]),
    store_host: bytes = bytes([10, 0, 0, 2]),
    port: int = 10911,
    store_timestamp: int = 1_700_000_000_000,
    queue_id: int = 0,
    queue_offset: int = 0,
) -> bytes:
    """A record for the physical offset ``at``."""
    crc = zlib.crc32(body) & 0x7FFFFFFF
    after_size = (
        struct.pack(">iiiiqqiq", magic, crc, queue_id, 0, queue_offset, at, sys_flag, 1_699_999_999_999)
        + struct.pack(f">{len(born_host)}siq{len(store_host)}si", born_host, port, store_timestamp, store_host, port)
        + struct.pack(">iqi", 0, 0, len(body))
        + body
        + struct.pack(">h" if magic == V2 else ">B", len(topic))
        + topic
        + struct.pack(">h", len(properties))
        + properties
    )
    return struct.pack(">i", len(after_size) + 4) + after_size


def filler(size: int) -> bytes:
    """A filler record of ``size`` bytes, for the end of a file."""
    return struct.pack(">ii", size, BLANK).ljust(size, b"\0")


def log_of(*options: Mapping[str, Any]) -> bytes:
    """Records one after another, from physical offset 0 on."""
    log = b""
    for fields in options:
        log += record(len(log), **fields)
    return log


def entry(at: int, size: int, tag: str | None) -> bytes:
    """The consume queue entry of a record."""
    return struct.pack(">qiq", at, size, 0 if tag is None else java_hash(tag))
