"""What a broker makes of its commit log when it starts (RocketMQ 5.5 CommitLog.recoverNormally, recoverAbnormally).

It loads the segments only if each has the configured size. It then goes back to a segment that its consume queues
(after a clean shutdown) or its checkpoint (after a crash) have reached, reads on from there, and ends the log at the
first record that is not whole or whose body does not have its CRC. Damage before that segment is not noticed.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.store.commitlog_walk import Records
from schemas.store.consume_queue import written_entries
from schemas.store.message_decoder import decode
from schemas.store.record_layout import FIELDS, MAGIC_BLANK, PHYSICAL_OFFSET, Found, int_at, walk
from schemas.store.segments import Segment, segments

RECOVER_AT_MOST = 10  # segments; commitLogRecoverMaxNum
CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class Recovery:
    """What a broker would do: refuse the log, or end it at a physical offset and lose the messages from there on."""

    refused: str | None
    end_after_clean_shutdown: int | None
    end_after_crash: int | None


def recovery(path: str, segment_size: int | None = None) -> Recovery:
    """What a broker would do with a store folder, or the commitlog folder in one, as it is.

    ``segment_size`` is mappedFileSizeCommitLog in bytes; without it, the commonest size of the segments.
    Raises CommitLogError where there is no segment.
    """
    log = segments(path)
    if log[-1].size == 0:  # made but not used: the broker deletes it
        log.pop()
    if not log:
        return Recovery(None, 0, 0)
    size = segment_size or Counter(segment.size for segment in log).most_common(1)[0][0]
    for segment in log:
        if segment.size != size:
            return Recovery(f"{segment.path} has {segment.size} bytes instead of {size}", None, None)
    store = Path(log[0].path).parent.parent
    dispatched = _end_of_consume_queues(store / "consumequeue")
    flushed_time, flushed_offset = _checkpoint(store / "checkpoint")
    after_crash = (
        (lambda _, time: time <= flushed_time) if flushed_offset <= 0 else (lambda at, _: at <= flushed_offset)
    )
    return Recovery(
        None,
        _end(log[_first_to_read(log, lambda at, _: at <= dispatched) :]),
        _end(log[_first_to_read(log, after_crash) :]),
    )


def _first_to_read(log: list[Segment], is_reached: Callable[[int, int], bool]) -> int:
    """The last segment whose first message (offset, store time in ms) is reached, at most RECOVER_AT_MOST back."""
    for index in range(len(log) - 1, max(0, len(log) - RECOVER_AT_MOST), -1):
        whole, _, _ = _whole(np.frombuffer(log[index].map(), np.uint8), 1)
        if len(whole):
            first = decode(whole, ["store_timestamp"])
            at = int.from_bytes(whole.log[PHYSICAL_OFFSET : PHYSICAL_OFFSET + 8].tobytes(), "big", signed=True)
            if is_reached(at, first.column(0)[0].as_py()):
                return index
    return max(0, len(log) - RECOVER_AT_MOST)


def _end(log: list[Segment]) -> int:
    """The physical offset where the broker stops to read, from the first of these segments on."""
    end = 0
    for segment in log:
        data = np.frombuffer(segment.map(), np.uint8)
        position, found = 0, int(Found.RECORD)
        while found == Found.RECORD:
            _, reached, found = _whole(data[position:], CHUNK_ROWS)
            position += reached
        end = segment.offset + position
        at_filler = position + 8 <= len(data) and int_at(data, position + 4) == MAGIC_BLANK
        if not at_filler or int_at(data, position) > len(data) - position:
            break
    return end


def _whole(log: NDArray[np.uint8], most: int) -> tuple[Records, int, int]:
    """Records up to the first that the broker rejects, the position there, and what it found."""
    layout = np.empty((len(FIELDS), most), np.int64)
    rows, position, found = walk(log, layout)
    records = Records(0, log, layout[:, :rows])
    claimed, computed, lengths = decode(records, ["body_crc", "body_crc_computed", "body_length"]).columns
    damaged = (claimed.to_numpy() != computed.to_numpy()) & (lengths.to_numpy() > 0)
    if damaged.any():
        kept = int(np.argmax(damaged))
        return Records(0, log, layout[:, :kept]), int(layout[0, kept]), int(Found.INCONSISTENT)
    return records, position, found


def _end_of_consume_queues(folder: Path) -> int:
    """The physical offset after the last message that has a consume queue entry; -1 without any."""
    return max((_end_of_consume_queue(queue) for queue in folder.glob("*/*") if queue.is_dir()), default=-1)


def _end_of_consume_queue(queue: Path) -> int:
    files = sorted(file for file in queue.iterdir() if file.name.isdecimal())[-3:]
    entries = written_entries(b"".join(file.read_bytes() for file in files))
    return int(entries["commitlog_offset"][-1]) + int(entries["size"][-1]) if len(entries) else -1


def _checkpoint(file: Path) -> tuple[int, int]:
    """How far the consume queues were flushed: store time in ms, and physical offset; 0 where not known."""
    if not file.is_file():
        return 0, 0
    numbers = np.frombuffer(file.read_bytes()[:48], ">i8")
    return int(numbers[1]), int(numbers[5])
