"""What the filters of a topic did with a block of entries."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from filtering.delivery.entries import Int32s, Int64s
from filtering.delivery.match_sets import MatchSets


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the filters did with n entries of w windows in q queues.

    ``bit_maps``: the filter bit maps (binary, null without filter data), None where they were given.
    ``scanned`` (masks x queues): the entries that each mask lets a window decide; window i has mask ``mask_of[i]``.
    ``counts`` (windows x queues x window_loops.COUNTS); ``uncertain`` (changes x queues).
    """

    bit_maps: pa.BinaryArray | None
    delivered: MatchSets
    dropped_by_client: MatchSets
    queue_ids: Int32s
    mask_of: Int32s
    scanned: Int64s
    counts: Int64s
    uncertain: Int64s
