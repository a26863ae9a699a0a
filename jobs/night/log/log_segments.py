"""The segments of a broker's log in one night, and what is at their physical offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.night.tasks.log_task import LogRange
from schemas.rocketmq_store.commitlog.commitlog_walk import Damage, Records, first_piece
from schemas.rocketmq_store.commitlog.segments import Segment
from schemas.storage import Storage


@dataclass(frozen=True)
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
        found = self.at(offset)
        return self.start <= offset < self.segments[-1].offset and (found is None or found[0].data_end <= offset)

    def _first_piece(self, offset: int) -> Records | Damage | None:
        found = self.at(offset)
        if found is None:
            return None
        return first_piece(found[0], offset, found[1])

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from a physical offset on; fewer at the end of a segment."""
        found = self.at(offset)
        if found is None:
            return b""
        with found[0].open() as file:
            return file.read(offset - found[0].offset, length).tobytes()

    def range(self, start: int, stop: int) -> LogRange:
        """A range of one segment, as a task that lies before the end of the log."""
        found = self.at(start)
        assert found is not None
        segment, end = found
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
