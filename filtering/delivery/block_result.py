"""The result of running the filters of a topic on a block of entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from filtering.delivery.entries import Int32s, Int64s
from filtering.delivery.match_sets import MatchSets
from filtering.delivery.uncertain_entries import UncertainEntries


@dataclass(frozen=True, eq=False)
class BlockResult:
    """The result for a block of entries.

    ``bit_maps``: the calculated filter bit maps (binary, null without filter data); None if the entries had bit maps.
    ``scanned`` (masks x queues): the number of entries that each mask selects; window i has mask ``mask_of[i]``.
    ``counts`` (windows x queues x window_loops.COUNTS) counts entries; no hook has dropped one yet. ``uncertain`` has
    an item for each queue, or none without changes.
    """

    bit_maps: pa.BinaryArray | None
    delivered: MatchSets
    dropped_by_client: MatchSets
    queue_ids: Int32s
    mask_of: Int32s
    scanned: Int64s
    counts: Int64s
    uncertain: Sequence[UncertainEntries]
