"""Entries of a queue, as the broker should have written them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class QueueEntries:
    """Entries of one queue with consecutive queue offsets from ``first`` on, as the broker should have written them."""

    first: int
    commitlog_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]
    bit_maps: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.size)
