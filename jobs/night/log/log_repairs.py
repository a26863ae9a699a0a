"""Finds bytes of a broker's log that were damaged or missing when an earlier night read them, and are right now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from jobs.night.log.log_segments import LogSegments
from jobs.night.tasks.log_task import LogRange
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import Where, one_of, row_groups, tuples, within
from schemas.delta.warehouse import Warehouse
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.message_decoder import decode
from schemas.rocketmq_store.commitlog.segments import is_mapped_file

COMPARED_DAMAGE = 64 << 20
"""Bytes of quarantined damage that each night compares with the log again; damage beyond this is not compared."""


@dataclass
class _Damage:
    """Quarantined bytes of a segment file, from a physical offset to another.

    ``is_gap``: the rest of the segment was missing. ``is_repaired``: the log has other bytes there now.
    """

    segment: str
    start: int
    stop: int
    is_gap: bool
    is_repaired: bool = False


class LogRepairs:
    """The repairs of a log of which the messages up to the physical offset ``end`` are stored in a warehouse."""

    def __init__(self, log: LogSegments, broker_name: str, end: int, warehouse: Warehouse) -> None:
        self._log = log
        self._end = end
        self._warehouse = warehouse
        self._messages = warehouse.files(COMMITLOG, broker_name)
        self._quarantine = warehouse.files(QUARANTINE, broker_name)

    def mended(self) -> list[LogRange]:
        """The messages that were stored with a damaged body and have the right one in the log now."""
        columns = ["commitlog_offset", "store_size"]
        damaged = [one_of("body_is_damaged", [True]), within("commitlog_offset", self._log.start)]
        rows = self._warehouse.rows(COMMITLOG, columns, damaged, self._messages)
        ranges = []
        for offset, size in tuples(rows, *columns):
            record = self._log.record(offset)
            if record is not None:
                claimed, computed = decode(record, ["body_crc", "body_crc_computed"]).columns
                if claimed.equals(computed):
                    ranges.append(self._log.range(offset, offset + size))
        return ranges

    def repaired(self) -> list[LogRange]:
        """Ranges of quarantined bytes that differ in the log now, and of segments that were missing.

        Damage that adjoins is one range: a repaired message may begin in one piece and end in the next.
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
                areas[-1].is_repaired |= piece.is_repaired
            else:
                areas.append(piece)
        ranges += [self._log.range(area.start, area.stop) for area in areas if area.is_repaired]
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
                found = self._log.at(offset)
                is_missing = not data and (found is None or found[0].offset >= int(name))
                if is_missing or (found is not None and found[0].path == name):
                    piece = _Damage(name, offset, offset + max(1, len(data)), is_gap=not data)
                    if compared < COMPARED_DAMAGE:
                        piece.is_repaired = not piece.is_gap and self._log.read(offset, len(data)) != data
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
                gap.stop, gap.is_repaired = part.stop, True
            else:
                others.append(part)
        return others

    def _first_message_after(self, offset: int) -> int:
        """The physical offset of the first stored message after another; the end of what was read without one."""
        found = [self._end]
        for file in self._messages:
            least, greatest = file.least["commitlog_offset"], file.greatest["commitlog_offset"]
            if least > offset:
                found.append(least)
            elif greatest > offset:
                after = [within("commitlog_offset", offset + 1)]
                rows = self._warehouse.rows(COMMITLOG, ["commitlog_offset"], after, [file])
                found.append(pc.min(rows["commitlog_offset"]).as_py())
        return min(found)
