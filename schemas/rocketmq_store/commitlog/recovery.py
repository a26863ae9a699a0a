"""How a broker recovers its commit log when it starts (RocketMQ 5.5 CommitLog.recoverNormally, recoverAbnormally).

It loads the segments only if each has the configured size. It then goes back to a segment that its consume queues
(after a clean shutdown) or its checkpoint (after a crash) have reached, reads from there, and ends the log at the
first record that is not whole or whose body does not match its CRC. Damage before that segment is not noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.rocketmq_store.commitlog.commitlog_walk import REASONS, Damage, Records, Walk, first_piece
from schemas.rocketmq_store.commitlog.log_end import checkpoint
from schemas.rocketmq_store.commitlog.record_layout import Found
from schemas.rocketmq_store.commitlog.record_search import RecordSearch
from schemas.rocketmq_store.commitlog.segments import Segment, segments
from schemas.rocketmq_store.consumequeue.queue_index import queue_index
from schemas.storage import Storage

RECOVER_AT_MOST = 10  # segments; commitLogRecoverMaxNum
UNCHECKED = frozenset({REASONS[Found.ILLEGAL_PORT], REASONS[Found.ILLEGAL_QUEUE_OFFSET]})
"""Whole records whose fault the broker does not notice when it recovers (CommitLog.checkMessageAndReturnSize)."""


@dataclass(frozen=True)
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
            found, _ = RecordSearch(file, segment.offset, file.size).look(end - segment.offset)
        if found != Found.FILLER:
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
