"""Plans which parts of a broker's log a night reads: new parts, and parts that changed since an earlier night.

A broker preallocates segments and writes them through memory maps, so new messages may change neither the size nor the
time of a file: logs are compared by content. :func:`plan_log` compares the snapshot's log (LogSegments) with what
earlier nights read of it (ReadSoFar):

- LogComparison compares stored messages with the log, from the end backwards: where does it begin to differ? Then the
  broker has cut its log, or it is another log.
- RecoveredParts looks for bytes that an earlier night could not read and that are right now: damage (*recovered
  ranges*), and messages that were stored with a damaged body (*recovered bodies*).
- The rest is new, up to the last segment with data. It is cut into ranges of about 128 MiB, one for each task. A range
  begins anywhere: its task synchronises at the first record that knows its own offset, and :func:`read_ranges` reads
  two ranges again as one if their borders do not meet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.consumption.offsets import NO_QUEUES
from filtering.frozen import frozen
from jobs.night.inputs import StoreSnapshot
from jobs.night.past import BrokerState
from jobs.night.tasks import RangeResult
from schemas.commitlog import COMMITLOG, file_columns, view
from schemas.delta.table import StoredFile
from schemas.delta.table_rows import Where, one_of, row_groups, sorted_by, tuples, within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.messages.commitlog_rows import Bodies
from schemas.messages.stored_messages import PhysicalRange, end_of_messages
from schemas.rocketmq_store.commitlog_walk import Damage, Records, Walk, first_piece
from schemas.rocketmq_store.message_decoder import decode
from schemas.rocketmq_store.recovery import fingerprint
from schemas.rocketmq_store.segments import LogRange, Segment, is_mapped_file
from schemas.run_ledger import DAMAGED_BODIES, LAST_MESSAGE, LedgerEntry
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage
from schemas.tables import QUARANTINE

# The segments, and what is at their physical offsets.


@frozen
class LogSegments:
    """The segments of a log in a store, and the physical offsets after the last nonzero byte of each (``ends``)."""

    store: Storage
    segments: Sequence[Segment]
    ends: Sequence[int]

    @property
    def start(self) -> int:
        return self.segments[0].offset

    def at(self, offset: int) -> tuple[Segment, int] | None:
        """The segment with a physical offset, and the end of its data; None if no segment has it."""
        pairs = zip(self.segments, self.ends, strict=True)
        return next(((segment, end) for segment, end in pairs if segment.offset <= offset < segment.end), None)

    def record(self, offset: int) -> Records | None:
        """The record that begins at a physical offset; None if there is no whole record."""
        first = self._first_piece(offset)
        return first if isinstance(first, Records) else None

    def is_damaged(self, offset: int) -> bool:
        """Whether the bytes from a physical offset on are not a record, nor the end of a segment or of the log."""
        return isinstance(self._first_piece(offset), Damage)

    def is_missing(self, offset: int) -> bool:
        """Whether the segment with a physical offset has no data from there on, but a later segment has."""
        place = self.at(offset)
        return self.start <= offset < self.segments[-1].offset and (place is None or place[0].data_end <= offset)

    def _first_piece(self, offset: int) -> Records | Damage | None:
        place = self.at(offset)
        if place is None:
            return None
        return first_piece(place[0], offset, place[1])

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from a physical offset on; fewer at the end of a segment."""
        place = self.at(offset)
        if place is None:
            return b""
        with place[0].open() as file:
            return file.read(offset - place[0].offset, length).tobytes()

    def range(self, start: int, stop: int) -> LogRange:
        """A range of one segment, as a task that lies before the end of the log."""
        place = self.at(start)
        assert place is not None
        segment, end = place
        stop = min(stop, segment.end)
        ends_segment = stop >= segment.data_end
        return LogRange(segment, start, stop, max(end, stop), followed_by=self.after(segment) if ends_segment else None)

    def parts(self, start: int, stop: int) -> Iterator[LogRange]:
        """The data from a physical offset to another, a range for each segment."""
        for segment in self.segments:
            if start < segment.end and segment.offset < stop and start < segment.data_end:
                yield self.range(max(start, segment.offset), min(stop, segment.data_end))

    def after(self, segment: Segment) -> int | None:
        """The physical offset of the next segment; None after the last one."""
        return next((other.offset for other in self.segments if other.offset > segment.offset), None)


# Another log, or a cut end.


SEAM_BYTES = 1 << 16
"""The last messages that are stored, this many bytes and at least one, are compared with the log in all fields."""
_HEADER = (
    "commitlog_offset", "topic", "queue_id", "queue_offset", "store_size", "born_timestamp", "store_timestamp",
    "sys_flag", "body_length", "tags", "keys",
)  # fmt: skip
_MESSAGE = (*_HEADER, "properties", "body_crc")


class LogComparison:
    """Compares a log with the messages that earlier nights stored of it."""

    def __init__(self, log: LogSegments, so_far: ReadSoFar) -> None:
        self._log = log
        self._end = so_far.end
        self._last_message = so_far.last.inputs.get(LAST_MESSAGE)
        self._warehouse = so_far.warehouse
        self._files = so_far.files

    @property
    def first_stored(self) -> int:
        """The physical offset of the first stored message."""
        return self._files[0].least["commitlog_offset"] if self._files else self._end

    def first_difference(self) -> int | None:
        """The physical offset of the first stored message after the last one that is in the log; None if all are.

        Messages before it that are not in the log were damaged after a night read them: a broker that cuts its log
        writes all later messages anew. Messages that the broker deleted are not compared. If the log has all stored
        messages and ends before what was read, the bytes that are gone were damage: it differs after the last message.
        """
        cut = self._cut()
        if cut is None and self._is_shorter:
            return self._end_of_messages
        # A broker that cuts its log writes a new record there, or nothing, and no later segment has data.
        is_damage = cut is not None and (self._log.is_damaged(cut) or self._log.is_missing(cut))
        return None if is_damage and self._log.segments[-1].data_end >= self._end else cut

    @property
    def _is_shorter(self) -> bool:
        return self._end > self._log.segments[-1].end

    @property
    def _end_of_messages(self) -> int:
        """The physical offset after the last stored message; the start of the log without one."""
        last = max((file.greatest["commitlog_offset"] for file in self._files), default=0)
        return max(self._log.start, end_of_messages(self._warehouse, self._files, last))

    def _cut(self) -> int | None:
        files = [file for file in self._files if file.greatest["commitlog_offset"] >= self._log.start]
        at_end = None if self._is_shorter or not files else self._difference_at_end(files[-1])
        if not files or (at_end is None and not self._is_shorter):
            return None
        first = bisect_left(files, True, key=lambda file: not self._begins_the_same(file))
        if first == 0:
            return int(files[0].least["commitlog_offset"])
        differing = self._difference_in(files[first - 1])
        if differing is not None:
            return differing
        return int(files[first].least["commitlog_offset"]) if first < len(files) else at_end

    def _difference_at_end(self, file: StoredFile) -> int | None:
        """The physical offset from which the last messages of a file are not in the log; None if the last one is."""
        last = file.greatest["commitlog_offset"]
        if self._last_message is not None and self._last_message == last_message(self._log, last, self._end):
            return None
        near = [within("commitlog_offset", max(self._log.start, last - SEAM_BYTES))]
        stored = self._warehouse.rows(COMMITLOG, file_columns(_MESSAGE), near, [file])
        rows = view(sorted_by(stored, "commitlog_offset"), _MESSAGE).to_pylist(maps_as_pydicts="strict")
        different = list(takewhile(lambda row: not self._is_in_log(row), reversed(rows)))
        return int(different[-1]["commitlog_offset"]) if different else None

    def _is_in_log(self, row: dict[str, Any]) -> bool:
        """Whether the log has the same message: header, properties and body checksum."""
        record = self._log.record(row["commitlog_offset"])
        if record is None:
            return False
        messages: list[dict[str, Any]] = decode(record, _MESSAGE).to_pylist(maps_as_pydicts="strict")
        return messages == [row]

    def _begins_the_same(self, file: StoredFile) -> bool:
        """Whether one of the first messages of a file is in the log."""
        first = max(file.least["commitlog_offset"], self._log.start)
        near = [within("commitlog_offset", first, first + SEAM_BYTES)]
        rows = sorted_by(self._warehouse.rows(COMMITLOG, _HEADER, near, [file]), "commitlog_offset")
        for row in rows.to_pylist():
            record = self._log.record(row["commitlog_offset"])
            if record is not None and decode(record, _HEADER).to_pylist() == [row]:
                return True
        return False

    def _difference_in(self, file: StoredFile) -> int | None:
        """Where a file has its first message after the last one that is in the log; None if its last one is."""
        stored = sorted_by(self._warehouse.rows(COMMITLOG, _HEADER, files=[file]), "commitlog_offset")
        offsets = stored["commitlog_offset"].to_numpy()
        after = int(np.searchsorted(offsets, self._log.start))
        for batch in self._decoded(int(offsets[after]), int(offsets[-1]) + 1):
            at = np.searchsorted(offsets, batch["commitlog_offset"].to_numpy()).clip(max=len(offsets) - 1)
            expected = stored.take(at)
            same = np.ones(len(batch), bool)
            for name in _HEADER:
                equal = pc.equal(expected[name], batch[name]).fill_null(False).to_numpy()
                both_null = pc.and_(expected[name].is_null(), batch[name].is_null()).to_numpy()
                same &= equal | both_null
            if same.any():
                after = int(at[same].max()) + 1
        return int(offsets[after]) if after < len(offsets) else None

    def _decoded(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records of the log from a physical offset to another."""
        for segment, end in zip(self._log.segments, self._log.ends, strict=True):
            if start < segment.end and segment.offset < stop:
                for piece in Walk(segment, max(start, segment.offset), stop, end):
                    if isinstance(piece, Records):
                        yield decode(piece, _HEADER)


# Repairs.


COMPARED_DAMAGE = 64 << 20
"""Bytes of quarantined damage that each night compares with the log again; damage beyond this is not compared."""


@dataclass
class _Damage:
    """Quarantined bytes of a segment file, from a physical offset to another.

    ``is_gap``: the rest of the segment was missing. ``is_recovered``: the log has other bytes there now.
    """

    segment: str
    start: int
    stop: int
    is_gap: bool
    is_recovered: bool = False


class RecoveredParts:
    """What can be read now of a log, and could not be when earlier nights stored its messages."""

    def __init__(self, log: LogSegments, so_far: ReadSoFar) -> None:
        self._log = log
        self._end = so_far.end
        self._warehouse = so_far.warehouse
        self._files = so_far.files
        self._quarantine = so_far.warehouse.files(QUARANTINE, so_far.last.broker_name)

    def recovered_bodies(self) -> list[LogRange]:
        """The messages that were stored with a damaged body and have the right one in the log now."""
        columns = ["commitlog_offset", "store_size"]
        damaged = [one_of("body_is_damaged", [True]), within("commitlog_offset", self._log.start)]
        rows = self._warehouse.rows(COMMITLOG, columns, damaged, self._files)
        ranges = []
        for offset, size in tuples(rows, *columns):
            record = self._log.record(offset)
            if record is not None:
                claimed, computed = decode(record, ["body_crc", "body_crc_computed"]).columns
                if claimed.equals(computed):
                    ranges.append(self._log.range(offset, offset + size))
        return ranges

    def recovered_ranges(self) -> list[LogRange]:
        """Ranges of quarantined bytes that differ in the log now, and of segments that were missing.

        Damage that adjoins is one range: a recovered message may begin in one piece and end in the next.
        """
        pieces = self._quarantined()
        ranges: list[LogRange] = []
        areas: list[_Damage] = []
        next_starts = [*(piece.start for piece in pieces[1:]), self._end]
        for piece, next_start in zip(pieces, next_starts, strict=False):
            adjoins = bool(areas) and self._adjoins(areas[-1], piece)
            if piece.is_gap:
                ranges += self._fill(piece, next_start)
            if adjoins:
                areas[-1].stop = piece.stop
                areas[-1].is_recovered |= piece.is_recovered
            else:
                areas.append(piece)
        ranges += [self._log.range(area.start, area.stop) for area in areas if area.is_recovered]
        return sorted(ranges, key=lambda part: part.start)

    def _quarantined(self) -> list[_Damage]:
        """The quarantined pieces of the log by physical offset, compared with the log.

        Pieces of a file that is not the segment with this offset are left out: its name was wrong, or the log was cut.
        """
        in_log = [within("offset", self._log.start, min(self._end, self._log.segments[-1].end))]
        pieces = []
        compared = 0
        for name, offset, data in self._rows_of_quarantine(in_log):
            if is_mapped_file(name):
                place = self._log.at(offset)
                is_missing = not data and (place is None or place[0].offset >= int(name))
                if is_missing or (place is not None and place[0].path == name):
                    piece = _Damage(name, offset, offset + max(1, len(data)), is_gap=not data)
                    if compared < COMPARED_DAMAGE:
                        piece.is_recovered = not piece.is_gap and self._log.read(offset, len(data)) != data
                        compared += len(data)
                    pieces.append(piece)
        return sorted(pieces, key=lambda piece: (piece.start, piece.segment, not piece.is_gap))

    def _rows_of_quarantine(self, where: Where) -> Iterator[tuple[str, int, bytes]]:
        """The file, the offset and the bytes of quarantined rows, a row group at a time: there may be gigabytes."""
        storage = self._warehouse.log(QUARANTINE).storage
        names = ["source_file", "offset", "bytes"]
        for file in sorted(self._quarantine, key=lambda file: file.least["offset"]):
            for rows in row_groups(QUARANTINE, storage, file.path, names, where):
                for batch in rows.to_batches(max_chunksize=1):
                    [row] = batch.to_pylist()
                    yield row["source_file"], row["offset"], row["bytes"]

    def _adjoins(self, area: _Damage, piece: _Damage) -> bool:
        """Whether a piece continues an area of damage in the same segment."""
        if piece.segment != area.segment:
            return False
        # Between damage and the missing rest, the filler may lie where it should not.
        return piece.start == area.stop or (piece.is_gap and self._first_message_after(area.stop - 1) >= piece.start)

    def _fill(self, gap: _Damage, next_start: int) -> list[LogRange]:
        """Extends a gap over the bytes that the log has there now. Returns the same bytes of later segments."""
        others = []
        for part in self._log.parts(gap.start, min(self._first_message_after(gap.start), next_start)):
            if part.start == gap.start:
                gap.stop, gap.is_recovered = part.stop, True
            else:
                others.append(part)
        return others

    def _first_message_after(self, offset: int) -> int:
        """The physical offset of the first stored message after another; the end of what was read without one."""
        offsets = [self._end]
        for file in self._files:
            least, greatest = file.least["commitlog_offset"], file.greatest["commitlog_offset"]
            if least > offset:
                offsets.append(least)
            elif greatest > offset:
                after = [within("commitlog_offset", offset + 1)]
                rows = self._warehouse.rows(COMMITLOG, ["commitlog_offset"], after, [file])
                offsets.append(pc.min(rows["commitlog_offset"]).as_py())
        return min(offsets)


# The plan.


@frozen(eq=False)
class ReadSoFar:
    """The part of a broker's log that earlier nights read: up to the physical offset ``end``.

    ``last``: the entry of the last of them, after which the broker is in ``state``. ``files``: those of commitlog, in
    the order of the log.
    """

    warehouse: Warehouse
    state: BrokerState
    last: LedgerEntry
    files: Sequence[StoredFile]
    end: int

    @property
    def begin(self) -> int | None:
        """The least physical offset at which the log of a night began; None if all nights read message logs."""
        return min((entry.log_start for entry in self.state.entries if entry.log_start is not None), default=None)


def read_so_far(state: BrokerState, warehouse: Warehouse) -> ReadSoFar | None:
    """None before the first night with messages."""
    last = state.last
    if last is None or last.ingested_to is None:
        return None
    files = sorted(warehouse.files(COMMITLOG, last.broker_name), key=lambda file: file.least["commitlog_offset"])
    # After a message log, ingested_to is inside the last message.
    end = max(last.ingested_to, end_of_messages(warehouse, files, last.ingested_to - 1))
    return ReadSoFar(warehouse, state, last, files, end)


RANGE_BYTES = 128 << 20


@frozen
class LogPlan:
    """The parts of a log that a night reads.

    ``ranges``: new parts, in order. ``recovered_ranges``: earlier ranges that were damaged and changed since.
    ``recovered_bodies``: ranges of one message that was stored with a damaged body and has the right one now. ``cut``:
    the physical offset from which the log differs from the stored messages; 0 if it is another log. ``deleted``: the
    bytes that the broker deleted before a night read them. ``before_first``: the bytes before the first message of the
    first night, which that night's copy of the log did not have, and which no night reads.
    """

    log: LogSegments
    ranges: Sequence[LogRange] = ()
    recovered_ranges: Sequence[LogRange] = ()
    recovered_bodies: Sequence[LogRange] = ()
    cut: int | None = None
    deleted: PhysicalRange | None = None
    before_first: PhysicalRange | None = None

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        parts = [*self.ranges, *self.recovered_ranges, *self.recovered_bodies]
        return sum(min(part.stop, part.data_end) - part.start for part in parts)


@frozen
class MessagesToRead:
    """The messages that a night reads by a ``log_plan``, and where stored ones are that have no entries yet.

    ``damaged_bodies``: of those that this run has ingested from a message log, how many do not match their checksum.
    """

    log_plan: LogPlan | None = None
    bodies: Bodies = Bodies.KEEP
    stored_range: PhysicalRange | None = None
    damaged_bodies: int = 0

    @property
    def recovered_ranges(self) -> Sequence[LogRange]:
        """The parts of the log that an earlier night could not read."""
        return self.log_plan.recovered_ranges if self.log_plan is not None else ()

    def with_ingested(self, offsets: PhysicalRange, damaged_bodies: int) -> MessagesToRead:
        """The same, and messages that were ingested from a message log. ``offsets``: where they are."""
        known = self.stored_range or offsets
        stored_range = min(known[0], offsets[0]), max(known[1], offsets[1])
        return replace(self, stored_range=stored_range, damaged_bodies=damaged_bodies)


def plan_log(snapshot: StoreSnapshot, so_far: ReadSoFar | None, new_epoch: bool) -> LogPlan:
    """Compares the log with what nights read ``so_far``. Raises UsageError if it is another log than the stored one.

    ``new_epoch``: another log replaces the stored one.
    """
    log = _with_data(snapshot, 0 if so_far is None else so_far.end)
    if so_far is None:
        return LogPlan(log, _ranges(log, log.start, None))
    comparison, recovered, last = LogComparison(log, so_far), RecoveredParts(log, so_far), so_far.last
    cut = comparison.first_difference()
    may_have_damaged = last.inputs.get(DAMAGED_BODIES) != "0"
    recovered_bodies: Sequence[LogRange] = recovered.recovered_bodies() if may_have_damaged else ()
    deleted = (so_far.end, log.start) if so_far.end < log.start else None
    if cut is not None and cut > max(log.start, comparison.first_stored):
        log = _with_data(snapshot, cut)
        recovered_ranges, recovered_bodies = _before(cut, recovered.recovered_ranges()), _before(cut, recovered_bodies)
        return LogPlan(log, _ranges(log, cut, None), recovered_ranges, recovered_bodies, cut=cut)
    if cut is not None or (deleted is not None and _goes_back(log, so_far.state, snapshot.offsets.min_offsets)):
        if not new_epoch:
            raise UsageError(
                f"the store holds another log than the one of broker {last.broker_name} in the warehouse. Give "
                "another brokerName (in --broker-config) or another --warehouse; if the broker was wiped and "
                "restarted, add --new-epoch, which replaces all of its rows"
            )
        log = _with_data(snapshot, 0)
        return LogPlan(log, _ranges(log, log.start, None), cut=0)
    ranges = _ranges(log, max(so_far.end, log.start), last.unsettled)
    is_unchanged = last.unsettled is not None and unsettled_fingerprint(log, so_far.end) == last.unsettled
    if is_unchanged and log.record(so_far.end) is None:
        ranges = []  # the same damage as in the night before, and no new bytes
    begin = so_far.begin
    before_first = (log.start, begin) if begin is not None and log.start < begin else None
    return LogPlan(
        log, ranges, recovered.recovered_ranges(), recovered_bodies, deleted=deleted, before_first=before_first
    )


def _before(offset: int, parts: Sequence[LogRange]) -> Sequence[LogRange]:
    return [part for part in parts if part.stop <= offset]


def _goes_back(log: LogSegments, state: BrokerState, first_offsets: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether the first message of a log has a queue offset below the end of its stored queue, and so have most queues.

    A queue may have been created again, but hardly most of them. ``first_offsets``: those that the log has, by topic
    and queue id, of queues with consume queue files.
    """
    first = log.record(log.start)
    if first is None:
        return False
    (message,) = decode(first, ["topic", "queue_id", "queue_offset"]).to_pylist()
    known = state.topics.get(message["topic"], NO_QUEUES)
    if message["queue_offset"] >= known.ends_by_queue.get(message["queue_id"], 0):
        return False
    go_on = [
        first_offsets[topic][queue_id] >= end
        for topic, known in state.topics.items()
        for queue_id, end in known.ends_by_queue.items()
        if end > 0 and queue_id in first_offsets.get(topic, ())
    ]
    return 2 * sum(go_on) <= len(go_on)


def unsettled_fingerprint(log: LogSegments, offset: int) -> str | None:
    """The fingerprint of the last segment's bytes from a physical offset on; None if only zeros follow."""
    if not log.segments[-1].offset <= offset < log.ends[-1]:
        return None
    return fingerprint(log.read(offset, min(log.ends[-1] - offset, COMPARED_DAMAGE)))


def last_message(log: LogSegments, offset: int, end: int) -> str:
    """The physical offset of the last message that was read, with the fingerprint of the bytes up to ``end``."""
    return f"{offset} {fingerprint(log.read(offset, min(end - offset, COMPARED_DAMAGE)))}"


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


def _with_data(snapshot: StoreSnapshot, ingested_to: int) -> LogSegments:
    """The segments up to the last one with data. Segments that were read completely are not searched for their end."""
    segments = snapshot.segments
    ends = [segment.end if segment.end <= ingested_to else segment.data_end for segment in segments]
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
