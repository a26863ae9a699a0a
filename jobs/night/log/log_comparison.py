"""Compares a broker's log with the stored messages, to find another log or a cut end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.night.log.log_segments import LogSegments
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import StoredFile
from schemas.delta.table_rows import sorted_by, within
from schemas.delta.warehouse import Warehouse
from schemas.messages.message_view import file_columns, view
from schemas.messages.stored_messages import end_of_messages
from schemas.rocketmq_store.commitlog.commitlog_walk import Records, Walk
from schemas.rocketmq_store.commitlog.message_decoder import decode

SEAM_BYTES = 1 << 16
"""The last messages that are stored, this many bytes and at least one, are compared with the log in all fields."""
_HEADER = (
    "commitlog_offset", "topic", "queue_id", "queue_offset", "store_size", "born_timestamp", "store_timestamp",
    "sys_flag", "body_length", "tags", "keys",
)  # fmt: skip
_MESSAGE = (*_HEADER, "properties", "body_crc")


class LogComparison:
    """Compares a log with the messages of ``broker_name`` in a warehouse, stored up to the physical offset ``end``."""

    def __init__(self, log: LogSegments, broker_name: str, end: int, warehouse: Warehouse) -> None:
        self._log = log
        self._end = end
        self._broker_name = broker_name
        self._warehouse = warehouse

    @cached_property
    def _files(self) -> list[StoredFile]:
        files = self._warehouse.files(COMMITLOG, self._broker_name)
        return sorted(files, key=lambda file: file.least["commitlog_offset"])

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
        found: list[dict[str, Any]] = decode(record, _MESSAGE).to_pylist(maps_as_pydicts="strict")
        return found == [row]

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
