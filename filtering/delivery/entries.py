"""Consume queue entries of one topic, with the message properties that filters read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from filtering.matcher.column import Column

_HAS_NO_ENTRY = 0x4
"""In sysFlag, of prepared (0x4) and rolled back (0xC) messages, but not of committed ones (0x8; MessageSysFlag)."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def has_entry(sys_flag: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether messages get a consume queue entry, by their sysFlag (CommitLogDispatcherBuildConsumeQueue).

    Prepared and rolled back transaction messages get none.
    """
    found: npt.NDArray[np.bool_] = np.asarray(sys_flag) & _HAS_NO_ENTRY == 0
    return found


def among(values: Int64s, ascending: Int64s) -> npt.NDArray[np.bool_]:
    """Whether each value is in ``ascending``."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: npt.NDArray[np.bool_] = ascending[at] == values
    return found


@dataclass(frozen=True, eq=False)
class Entries:
    """n entries of one topic, ordered by queue and queue offset.

    Arrays have n elements. ``store_timestamp`` is in ms. ``properties`` has the messages' properties by name, at
    least those that filters read. ``bit_maps`` (binary) are the filter bit maps, null for entries without one; None:
    they are not calculated yet. ``rows``: the same entries as filter hooks see them; None without hooks.
    ``without_body``: the positions of messages that are known to have no body, ascending.
    """

    topic: str
    queue_id: Int32s
    queue_offset: Int64s
    commitlog_offset: Int64s
    size: Int32s
    tags_code: Int64s
    store_timestamp: Int64s
    properties: Mapping[str, Column]
    bit_maps: pa.BinaryArray | None = None
    rows: pa.RecordBatch | None = None
    without_body: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.queue_id)

    @cached_property
    def queue_bounds(self) -> tuple[Int32s, Int64s]:
        """The queue ids, and the bounds of their entries: queue i has entries bounds[i] to bounds[i + 1], exclusive."""
        starts = np.append(0, np.flatnonzero(np.diff(self.queue_id)) + 1) if len(self) else np.empty(0, np.int64)
        return self.queue_id[starts], np.append(starts, len(self)).astype(np.int64)
