"""Reads a range of a broker's log on a worker: from bytes to rows of all tables."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.night.tasks.work import TaskResult, Work
from jobs.night.tasks.writer import NightWriter
from schemas.messages.bodies import Bodies
from schemas.messages.commitlog_rows import CommitlogRows
from schemas.rocketmq_store.commitlog.commitlog_walk import Damage, Records, Walk
from schemas.rocketmq_store.commitlog.log_end import is_unfinished
from schemas.rocketmq_store.commitlog.segments import Segment
from schemas.storage import Storage

DAMAGE_AT_ONCE = 16
REST_IS_MISSING = "the log goes on in the next segment, but the rest of this one is missing: copy the store again"


@dataclass(frozen=True)
class LogRange:
    """A part of a segment, from the physical offset ``start`` to ``stop`` (exclusive).

    ``data_end``: the offset where the zeros at the end of the segment begin. ``synchronise``: ``start`` may be inside
    a record. ``ends_log``: the range is the last of the log; if its last record may be incomplete, the next night
    reads it, unless the bytes have the fingerprint ``seen`` of the night before. ``followed_by``: the physical offset
    of the next segment, if the range is the last of its segment: then the broker has filled the segment.
    """

    segment: Segment
    start: int
    stop: int
    data_end: int
    synchronise: bool = False
    ends_log: bool = False
    seen: str | None = None
    followed_by: int | None = None

    @property
    def ends_segment(self) -> bool:
        """Whether it is the last range of its segment."""
        return self.ends_log or self.followed_by is not None


@dataclass(frozen=True)
class RangeResult:
    """The result of a range. ``first`` and ``reached`` are those of its Walk.

    ``settled``: the physical offset from which the next night reads. It is before ``reached`` if the log ends with
    bytes that may still change.
    """

    first: int | None
    reached: int
    settled: int
    result: TaskResult


def read_range(part: LogRange, store: Storage, work: Work, bodies: Bodies) -> RangeResult:
    """Reads a range of a log, and writes files of the tables in ``work``."""
    writer = NightWriter(work)
    rows = CommitlogRows(work.run, bodies, work.wanted)
    walk = Walk(part.segment, part.start, part.stop, part.data_end, part.synchronise)
    unsettled: int | None = None
    damage: list[Damage] = []
    for piece in walk:
        if isinstance(piece, Damage):
            unsettled = piece.offset if unsettled is None else unsettled
            damage.append(piece)
            if len(damage) == DAMAGE_AT_ONCE:
                _quarantine(writer, damage)
            continue
        unsettled = None
        records: Records = piece
        at_the_end = part.ends_log and walk.reached >= part.data_end < part.segment.end
        if at_the_end and is_unfinished(piece, part.data_end, store, part.seen):
            records = piece.first(len(piece) - 1)
            unsettled = piece.offset + int(piece.at("start")[-1])
        if len(records):
            batch, messages = rows.rows(records)
            writer.add(messages, batch)
    reached = _end_of_segment(walk, part.followed_by)
    if part.followed_by is not None and reached < part.followed_by:
        damage.append(Damage(part.segment.path, reached, REST_IS_MISSING, b""))
    _quarantine(writer, damage)
    settled = walk.reached if unsettled is None or not part.ends_log else unsettled
    return RangeResult(walk.first, walk.reached, settled, writer.close())


def _end_of_segment(walk: Walk, followed_by: int | None) -> int:
    """Where the walk ended; behind a cut file if the filler in it says so, and the next segment does not deny it."""
    if walk.filled_to is None or followed_by is None or walk.filled_to > followed_by:
        return walk.reached
    return max(walk.reached, walk.filled_to)


def _quarantine(writer: NightWriter, damage: list[Damage]) -> None:
    if damage:
        writer.quarantine([vars(piece) for piece in damage])
        damage.clear()
