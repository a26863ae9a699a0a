"""Columns of messages beside their deliveries: reads each file of commitlog once, in the order of the log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import files_that_may_hold, within
from schemas.delta.warehouse import Warehouse
from schemas.messages.message_view import file_columns, view

FILES_IN_MEMORY = 4
"""Deliveries come about in the order of the log; those of a backlog go back to earlier files."""


class MessageColumns:
    """Looks up ``columns`` of messages (of VIEW) by broker and physical offset."""

    def __init__(self, warehouse: Warehouse, columns: Sequence[str]) -> None:
        self._warehouse = warehouse
        self._columns = columns
        self._read = lru_cache(FILES_IN_MEMORY)(self._read_file)

    def of(self, broker_name: str | None, offsets: NDArray[np.int64]) -> pa.Table:
        """The columns of the messages at ``offsets``, in that order; null for a message that maintenance removed."""
        if not len(offsets):
            return self._empty()
        span = within("commitlog_offset", int(offsets.min()), below=int(offsets.max()) + 1)
        files = [file for file in self._warehouse.log(COMMITLOG).files if file.broker_name == broker_name]
        at, parts, before = np.full(len(offsets), -1, np.int64), [self._empty()], 0
        for file in files_that_may_hold(files, [span]):
            known, values = self._read(file.path)
            place = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
            is_here = known[place] == offsets
            at[is_here] = before + place[is_here]
            parts.append(values)
            before += len(known)
        return pa.concat_tables(parts).take(pa.array(at, mask=at < 0))

    def _empty(self) -> pa.Table:
        return view(COMMITLOG.file_schema.empty_table(), self._columns)

    def _read_file(self, path: str) -> tuple[NDArray[np.int64], pa.Table]:
        """The physical offsets in a file, ascending, and the columns of their messages."""
        needed = file_columns(["commitlog_offset", *self._columns])
        file = next(file for file in self._warehouse.log(COMMITLOG).files if file.path == path)
        rows = self._warehouse.rows(COMMITLOG, needed, files=[file]).sort_by("commitlog_offset")
        return rows["commitlog_offset"].to_numpy(), view(rows, self._columns)
