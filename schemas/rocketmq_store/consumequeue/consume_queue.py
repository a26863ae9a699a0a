"""Consume queue files: 20 bytes per entry (RocketMQ ConsumeQueue).

A file has a fixed size and is named by its offset in the queue, in bytes. Bytes not yet written are zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ENTRY = np.dtype([("commitlog_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK = (0, 2**31 - 1, 0)
"""The entry that the broker writes before the first entry of a queue that does not begin at 0."""


@dataclass(frozen=True, eq=False)
class QueueEntries:
    """Entries of one queue with consecutive queue offsets from ``first`` on, as the broker should have written them.

    ``have_units``: the extension was on when the broker wrote them, so each has its unit there.
    """

    first: int
    commitlog_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]
    bit_maps: pa.BinaryArray
    have_units: bool = True

    def __len__(self) -> int:
        return len(self.size)

    def part(self, begin: int, end: int, have_units: bool) -> QueueEntries:
        """The entries numbered ``begin`` to ``end - 1``."""
        part = slice(begin, end)
        return QueueEntries(
            self.first + begin, self.commitlog_offset[part], self.size[part], self.tags_code[part],
            self.store_timestamp[part], self.bit_maps.slice(begin, end - begin), have_units,
        )  # fmt: skip
