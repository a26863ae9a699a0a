"""The end of a log that its broker still writes to: a copy may hold half of the last record.

A record is copied into the log from front to back. Its properties come last, and no checksum covers them.
"""

from __future__ import annotations

import hashlib

import numpy as np

from filtering.tags_code import tags_code
from schemas.rocketmq_store.commitlog.commitlog_walk import Records
from schemas.rocketmq_store.commitlog.message_decoder import decode
from schemas.rocketmq_store.consumequeue.consume_queue_ext import is_address
from schemas.rocketmq_store.consumequeue.queue_index import queue_index
from schemas.storage import Storage


def fingerprint(data: bytes) -> str:
    """A hash of some bytes: 32 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:32]


def is_unfinished(records: Records, data_end: int, store: Storage, seen: str | None) -> bool:
    """Whether the last of some records, with which the log ends, may be only partly written.

    Such a record has zeros in its text, or a body that does not match its CRC. It counts as finished if the night
    before saw the same bytes (``seen`` is the fingerprint of those up to ``data_end``), or if the consume queue and the
    checkpoint of the ``store`` folder, which are written later, include it.
    """
    last = records.last()
    if not _has_gaps(last):
        return False
    begin = int(last.at("start")[0])
    if fingerprint(last.log[begin : data_end - last.offset].tobytes()) == seen:
        return False
    return not _is_dispatched(last, store)


def checkpoint(store: Storage) -> tuple[int, int, int]:
    """The store times (ms) up to which the log and the consume queues are on disk, and the queues' physical offset.

    A number is 0 if it is not known (StoreCheckpoint).
    """
    content = store.read("checkpoint")
    if content is None or len(content) < 48:
        return 0, 0, 0
    numbers = np.frombuffer(content[:48], ">i8")
    return int(numbers[0]), int(numbers[1]), int(numbers[5])


def _has_gaps(record: Records) -> bool:
    for name in ("topic", "properties"):
        begin = int(record.at(name)[0])
        if not record.log[begin : begin + int(record.at(f"{name}_length")[0])].all():
            return True
    return bool((record.body_crcs() != record.numbers("body_crc")).any())


def _is_dispatched(record: Records, store: Storage) -> bool:
    """Whether the log was flushed after the record was stored, and the consume queue has an entry that fits it."""
    (row,) = decode(
        record, ["topic", "queue_id", "queue_offset", "commitlog_offset", "store_size", "store_timestamp"]
    ).to_pylist()
    entry = queue_index(store).entry(row["topic"], row["queue_id"], row["queue_offset"])
    if entry is None or checkpoint(store)[0] < row["store_timestamp"]:
        return False
    fits = (entry.commitlog_offset, entry.size) == (row["commitlog_offset"], row["store_size"])
    if bool(is_address(entry.tags_code)):
        return fits
    (tags,) = decode(record, ["tags"]).column(0).to_pylist()
    return fits and entry.tags_code == tags_code(tags)
