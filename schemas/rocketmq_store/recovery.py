"""How a broker recovers its commit log when it starts (RocketMQ 5.5 CommitLog.recoverNormally, recoverAbnormally).

It loads the segments only if each has the configured size. It then goes back to a segment that its consume queues
(after a clean shutdown) or its checkpoint (after a crash) have reached, reads from there, and ends the log at the
first record that is not whole or whose body does not match its CRC. Damage before that segment is not noticed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from filtering.frozen import frozen
from filtering.tags_code import tags_code
from schemas.rocketmq_store.commitlog_walk import REASONS, Damage, Records, RecordSearch, Walk, first_piece
from schemas.rocketmq_store.message_decoder import decode
from schemas.rocketmq_store.queue_files import is_address, queue_index
from schemas.rocketmq_store.record_layout import BytesKind
from schemas.rocketmq_store.segments import Segment, segments
from schemas.storage import Storage

# The end of a log that its broker still writes to: a copy may hold half of the last record.
#
# A record is copied into the log from front to back. Its properties come last, and no checksum covers them.


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


RECOVER_AT_MOST = 10  # segments; commitLogRecoverMaxNum
UNCHECKED = frozenset({REASONS[BytesKind.ILLEGAL_PORT], REASONS[BytesKind.ILLEGAL_QUEUE_OFFSET]})
"""Whole records whose fault the broker does not notice when it recovers (CommitLog.checkMessageAndReturnSize)."""


@frozen
class Recovery:
    """What a broker would do: refuse the log, or end it at a physical offset and lose the messages from there on."""

    refused: str | None
    end_after_clean_shutdown: int | None
    end_after_crash: int | None


def recovery(storage: Storage, segment_size: int | None = None) -> Recovery:
    """What a broker would do when it starts on a store folder, or on the commitlog folder in one.

    ``segment_size`` is mappedFileSizeCommitLog in bytes; without it, the commonest size of the segments.
    Raises CommitLogError if there is no segment.
    """
    log = segments(storage)
    if log[-1].size == 0:  # created but not used: the broker deletes it
        log.pop()
    if not log:
        return Recovery(None, 0, 0)
    size = segment_size or Counter(segment.size for segment in log).most_common(1)[0][0]
    for segment in log:
        if segment.size != size:
            return Recovery(f"{segment.path} has {segment.size} bytes instead of {size}", None, None)
    dispatched = _end_of_consume_queues(storage)
    _, flushed_time, flushed_offset = checkpoint(storage)
    after_crash = (
        (lambda _, time: time <= flushed_time) if flushed_offset <= 0 else (lambda at, _: at <= flushed_offset)
    )
    return Recovery(
        None,
        _end(log[_first_to_read(log, lambda at, _: at <= dispatched) :]),
        _end(log[_first_to_read(log, after_crash) :]),
    )


def _first_to_read(log: Sequence[Segment], is_reached: Callable[[int, int], bool]) -> int:
    """The last segment whose first message (offset, store time in ms) is reached, at most RECOVER_AT_MOST back."""
    for index in range(len(log) - 1, max(0, len(log) - RECOVER_AT_MOST), -1):
        segment = log[index]
        first = first_piece(segment, segment.offset)
        if not isinstance(first, Records) or _undamaged(first) < len(first):
            continue
        if is_reached(int(first.numbers("physical_offset")[0]), int(first.numbers("store_timestamp")[0])):
            return index
    return max(0, len(log) - RECOVER_AT_MOST)


def _end(log: Sequence[Segment]) -> int:
    """The physical offset at which the broker stops if it reads these segments."""
    end = 0
    for segment in log:
        end = segment.offset
        for piece in Walk(segment, segment.offset, segment.end, segment.end):
            if isinstance(piece, Damage):
                if piece.reason in UNCHECKED and piece.offset == end:
                    end += int.from_bytes(piece.bytes[:4], "big")  # the record is whole; more damage may follow it
                if piece.offset + len(piece.bytes) > end:
                    return end
                continue
            kept = piece.first(_undamaged(piece))
            if len(kept):
                end = piece.offset + int(kept.at("start")[-1] + kept.at("size")[-1])
            if len(kept) < len(piece):
                return end
        with segment.open() as file:
            kind, _ = RecordSearch(file, segment.offset, file.size).look(end - segment.offset)
        if kind != BytesKind.FILLER:
            return end
    return end


def _undamaged(records: Records) -> int:
    """The number of records before the first whose body does not match its CRC."""
    damaged = (records.numbers("body_crc") != records.body_crcs()) & (records.at("body_length") > 0)
    return int(np.argmax(damaged)) if damaged.any() else len(records)


def _end_of_consume_queues(storage: Storage) -> int:
    """The physical offset after the last message that has a consume queue entry; -1 without any."""
    index = queue_index(storage)
    ends = []
    for topic, queue_id in index.queues:
        last = index.entry(topic, queue_id, index.end(topic, queue_id) - 1)
        if last is not None:
            ends.append(last.commitlog_offset + last.size)
    return max(ends, default=-1)
