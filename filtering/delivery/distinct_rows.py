"""Removes repeated rows of packed bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from filtering.delivery.entries import Int32s, Int64s
from filtering.delivery.match_sets import MatchSets
from filtering.matcher.packed_bits import Words


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Distinct rows of bits: ``windows[i]`` has row ``bits[chosen[i]]``, with ``counts[chosen[i]]`` set bits."""

    windows: Int64s
    chosen: Int64s
    bits: Words
    counts: Int64s


def distinct_rows(parts: list[tuple[Int32s, Words]]) -> DistinctRows:
    """The distinct rows of some ``parts``: each has the numbers of windows, and a row of bits for each of them."""
    windows = np.concatenate([np.empty(0, np.int64), *(numbers for numbers, _ in parts)])
    number_of: dict[bytes, int] = {}
    chosen, kept = [], []
    for _, rows in parts:
        for row in rows:
            known = len(number_of)
            number = number_of.setdefault(row.tobytes(), known)
            if number == known:
                kept.append(row)
            chosen.append(number)
    width = parts[0][1].shape[1] if parts else 0
    bits = np.array(kept, np.uint64).reshape(len(kept), width)
    return DistinctRows(windows, np.array(chosen, np.int64), bits, np.bitwise_count(bits).sum(axis=1, dtype=np.int64))


def distinct_match_sets(parts: list[tuple[Int32s, Words]], rows: int) -> MatchSets:
    """The windows of :func:`distinct_rows` as sets. ``rows``: the number of entries of the block."""
    distinct = distinct_rows(parts)
    return MatchSets.shared(distinct.windows, distinct.chosen, distinct.bits, distinct.counts, rows)
