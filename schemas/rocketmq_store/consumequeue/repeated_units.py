"""Units of the consume queue extension that a broker wrote twice.

A broker that was killed dispatches its last messages again when it starts: their entries stay as they are, but their
units follow once more (ConsumeQueue.putMessagePositionInfoWrapper).
"""

from __future__ import annotations

from filtering.broker_config import CONSUME_QUEUE_EXT_UNIT
from schemas.rocketmq_store.consumequeue.consume_queue_ext import STORE_TIMESTAMP
from schemas.rocketmq_store.consumequeue.queue_files import QueueFiles

FULL = b"\xff\xff"
"""What follows the last unit of a file: a short -1."""


def repeated_units(files: QueueFiles, position: int, latest: int, end: int | None = None) -> int:
    """Where the units end that begin at ``position`` and are not newer than ``latest`` (ms); at most ``end``."""
    while position != end:
        data = files.read(position, files.start(position) + files.file_size - position) or b""
        at = _units_end(data, latest, None if end is None else end - position)
        position += at
        if position == end or data[at : at + 2] != FULL:
            break
        position = files.start(position) + files.file_size
    return position


def _units_end(data: bytes, latest: int, end: int | None) -> int:
    at = 0
    while at != end and (size := int.from_bytes(data[at : at + 2], "big", signed=True)) >= CONSUME_QUEUE_EXT_UNIT:
        if int.from_bytes(data[at + STORE_TIMESTAMP : at + STORE_TIMESTAMP + 8], "big") > latest:
            break
        at += size
    return at
