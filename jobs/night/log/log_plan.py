"""Plans which parts of a broker's log a night reads: new parts, and parts that changed since an earlier night.

Logs are compared by content. A broker preallocates segments and writes them through memory maps, so new messages
may change neither the size nor the time of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from jobs.night.inputs.snapshot import StoreSnapshot
from jobs.night.log.log_comparison import LogComparison
from jobs.night.log.log_repairs import COMPARED_DAMAGE, LogRepairs
from jobs.night.log.log_segments import LogSegments
from jobs.night.past.read_so_far import ReadSoFar
from jobs.night.tasks.log_task import LogRange, RangeResult
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.messages.stored_messages import PhysicalRange
from schemas.rocketmq_store.commitlog.log_end import fingerprint
from schemas.rocketmq_store.commitlog.message_decoder import decode
from schemas.spark_tasks import Session, run_tasks

RANGE_BYTES = 128 << 20


@dataclass(frozen=True)
class LogPlan:
    """The parts of a log that a night reads.

    ``ranges``: new parts, in order. ``repaired``: earlier ranges that were damaged and changed since. ``mended``:
    ranges of one message that was stored with a damaged body and has the right one now. ``cut``: the physical offset
    from which the log differs from the stored messages; 0 if it is another log. ``deleted``: the bytes that the broker
    deleted before a night read them. ``unread``: the bytes before the first message of the first night, which that
    night's copy of the log did not have, and which no night reads.
    """

    log: LogSegments
    ranges: Sequence[LogRange] = ()
    repaired: Sequence[LogRange] = ()
    mended: Sequence[LogRange] = ()
    cut: int | None = None
    deleted: PhysicalRange | None = None
    unread: PhysicalRange | None = None

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        parts = [*self.ranges, *self.repaired, *self.mended]
        return sum(min(part.stop, part.data_end) - part.start for part in parts)


def plan_log(snapshot: StoreSnapshot, so_far: ReadSoFar | None, warehouse: Warehouse, new_epoch: bool) -> LogPlan:
    """Compares the log with the warehouse. Raises UsageError if it is another log than the broker's stored one.

    ``new_epoch``: another log replaces the stored one.
    """
    log = _with_data(snapshot, 0 if so_far is None else so_far.end)
    if so_far is None:
        return LogPlan(log, _ranges(log, log.start, None))
    comparison = LogComparison(log, so_far.broker_name, so_far.end, warehouse)
    repairs = LogRepairs(log, so_far.broker_name, so_far.end, warehouse)
    cut = comparison.first_difference()
    mended: Sequence[LogRange] = repairs.mended() if so_far.has_damaged_bodies else ()
    deleted = (so_far.end, log.start) if so_far.end < log.start else None
    if cut is not None and cut > max(log.start, comparison.first_stored):
        log = _with_data(snapshot, cut)
        repaired, mended = _before(cut, repairs.repaired()), _before(cut, mended)
        return LogPlan(log, _ranges(log, cut, None), repaired, mended, cut=cut)
    if cut is not None or (deleted is not None and _goes_back(log, so_far.queue_ends, snapshot.offsets.min_offsets)):
        if not new_epoch:
            raise UsageError(
                f"the store holds another log than the one of broker {so_far.broker_name} in the warehouse. Give "
                "another brokerName (in --broker-config) or another --warehouse; if the broker was wiped and "
                "restarted, add --new-epoch, which replaces all of its rows"
            )
        log = _with_data(snapshot, 0)
        return LogPlan(log, _ranges(log, log.start, None), cut=0)
    ranges = _ranges(log, max(so_far.end, log.start), so_far.unsettled)
    is_unchanged = so_far.unsettled is not None and unsettled(log, so_far.end) == so_far.unsettled
    if is_unchanged and log.record(so_far.end) is None:
        ranges = []  # the same damage as in the night before, and no new bytes
    unread = (log.start, so_far.begin) if so_far.begin is not None and log.start < so_far.begin else None
    return LogPlan(log, ranges, repairs.repaired(), mended, deleted=deleted, unread=unread)


def _before(offset: int, parts: Sequence[LogRange]) -> Sequence[LogRange]:
    return [part for part in parts if part.stop <= offset]


def _goes_back(
    log: LogSegments, queue_ends: Mapping[tuple[str, int], int], first_offsets: Mapping[str, Mapping[int, int]]
) -> bool:
    """Whether the first message of a log has a queue offset below the end of its stored queue, and so have most queues.

    A queue may have been created again, but hardly most of them. ``first_offsets``: those that the log has, by topic
    and queue id, of queues with consume queue files.
    """
    first = log.record(log.start)
    if first is None:
        return False
    (message,) = decode(first, ["topic", "queue_id", "queue_offset"]).to_pylist()
    if message["queue_offset"] >= queue_ends.get((message["topic"], message["queue_id"]), 0):
        return False
    firsts = {(topic, queue): offset for topic, of_topic in first_offsets.items() for queue, offset in of_topic.items()}
    go_on = [firsts[queue] >= end for queue, end in queue_ends.items() if end > 0 and queue in firsts]
    return 2 * sum(go_on) <= len(go_on)


def unsettled(log: LogSegments, offset: int) -> str | None:
    """The fingerprint of the last segment's bytes from a physical offset on; None if only zeros follow."""
    if not log.segments[-1].offset <= offset < log.ends[-1]:
        return None
    return fingerprint(log.read(offset, min(log.ends[-1] - offset, COMPARED_DAMAGE)))


def read_ranges(log: LogPlan, read: Callable[[LogRange], RangeResult], session: Session) -> Iterator[RangeResult]:
    """Reads the ranges of a log with ``read``, as parallel tasks. Yields the results in order."""
    before: tuple[LogRange, RangeResult] | None = None
    for part, result in zip(log.ranges, run_tasks(log.ranges, read, log.size, session), strict=True):
        if before is None or not part.synchronise or result.first == before[1].reached:
            if before is not None:
                yield before[1]
            before = part, result
        elif result.first is None and part.stop <= before[1].reached and not part.ends_segment:
            continue  # a record of the range before covers this one
        else:
            # A record of the range before crosses the border, and bytes inside it looked like a record.
            merged = _merged(before[0], part)
            before = merged, read(merged)
    if before is not None:
        yield before[1]


def _merged(before: LogRange, after: LogRange) -> LogRange:
    """Two adjacent ranges as one."""
    return replace(before, stop=after.stop, ends_log=after.ends_log, seen=after.seen, followed_by=after.followed_by)


def _with_data(snapshot: StoreSnapshot, read_to: int) -> LogSegments:
    """The segments up to the last one with data. Segments that were read completely are not searched for their end."""
    segments = snapshot.segments
    ends = [segment.end if segment.end <= read_to else segment.data_end for segment in segments]
    last = max((i for i, end in enumerate(ends) if end > segments[i].offset), default=0)
    return LogSegments(snapshot.storage, segments[: last + 1], ends[: last + 1])


def _ranges(log: LogSegments, begin: int, seen: str | None) -> list[LogRange]:
    """Ranges of about RANGE_BYTES from ``begin`` to the end of the log.

    Those of a segment have one size, and are one or an even number, so that two cores end at the same time.
    A segment before the last one has at least one range, which is empty if no data follows in the segment.
    """
    ranges = []
    for segment, data_end in zip(log.segments, log.ends, strict=True):
        following = log.after(segment)
        first = max(begin, segment.offset)
        if begin >= (data_end if following is None else following):
            continue
        end = max(first, data_end)
        count = max(1, 2 * round((end - first) / (2 * RANGE_BYTES)))
        starts = [first + (end - first) * number // count for number in range(count)]
        for start, stop in pairwise([*starts, end]):
            part = LogRange(segment, start, stop, data_end, synchronise=start > first)
            if stop == end:
                is_last = following is None
                part = replace(part, ends_log=is_last, seen=seen if is_last else None, followed_by=following)
            ranges.append(part)
    return ranges
