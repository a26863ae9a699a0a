"""Counts the entries of which it is not known which filter of a changed subscription they met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from filtering.delivery import window_loops
from filtering.delivery.entries import Entries, Int64s, among
from filtering.delivery.entry_masks import EntryMasks
from filtering.delivery.match_sets import MatchSets
from filtering.delivery.pull_window import FOREVER
from filtering.matcher import packed_bits
from filtering.matcher.packed_bits import Words
from filtering.pulls.pull_simulation import DEFAULT_BATCH


class NumberedChange(NamedTuple):
    """An UncertainChange, as the numbers of its predicates and of the mask of its time."""

    before: int
    after: int
    until: int
    mask: int


@dataclass(frozen=True, eq=False)
class UncertainEntries:
    """The uncertain entries of one queue in one block.

    ``first`` is the queue offset of the block's first entry. For each UncertainChange, ``counts`` has the number of
    uncertain entries, and ``ends`` the queue offset of the first entry that matches ``until``, or FOREVER.
    """

    first: int
    counts: Int64s
    ends: Int64s

    def __bool__(self) -> bool:
        return bool(self.counts.any() or (self.ends < FOREVER).any())


def uncertain_entries(
    changes: Sequence[NumberedChange], bits: Words, masks: EntryMasks, entries: Entries, bounds: Int64s
) -> list[UncertainEntries]:
    """An item for each queue, or none without ``changes``. ``bits``: the matches of entries (predicates x words)."""
    if not changes:
        return []
    queue_offsets = entries.queue_offset
    counts = np.zeros((len(changes), len(bounds) - 1), np.int64)
    ends = np.full_like(counts, FOREVER)
    for i, change in enumerate(changes):
        in_time = masks.rows[masks.row_of[change.mask]]
        stops = _first_matches(bits[change.until] & in_time, bounds)
        differing = (bits[change.before] ^ bits[change.after]) & in_time
        is_end = stops < bounds[1:]
        counts[i] = window_loops.counts_between(differing, bounds[:-1], stops + is_end)
        ends[i, is_end] = queue_offsets[stops[is_end]]
    return [
        UncertainEntries(int(queue_offsets[start]), counts[:, i], ends[:, i])
        for i, start in enumerate(bounds[:-1].tolist())
    ]


def count_uncertain(blocks: Sequence[UncertainEntries]) -> Int64s:
    """The number of uncertain entries of one queue for each change. ``blocks``: at least one, in any order."""
    end = np.min([block.ends for block in blocks], axis=0)
    counts: Int64s = np.sum([np.where(block.first <= end, block.counts, 0) for block in blocks], axis=0)
    return counts


def count_lost_pulls(delivered: MatchSets, entries: Entries, counts: Int64s) -> None:
    """Adds to the uncertain ones of ``counts`` (windows x queues x COUNTS) those beside a message without a body.

    A Java client up to 5.2.0 fails on such a pull, and its listener gets no message of it (ProcessQueue.putMessage).
    A pull has up to DEFAULT_BATCH messages. Those in other blocks are not counted.
    """
    _, bounds = entries.queue_bounds
    for match_set in delivered:
        positions = match_set.positions
        empty = np.flatnonzero(among(positions.astype(np.int64), entries.without_body))
        if not len(empty):
            continue
        queue_starts = np.searchsorted(positions, bounds)
        queues = np.searchsorted(queue_starts, empty, side="right") - 1
        first = np.maximum(empty - DEFAULT_BATCH + 1, queue_starts[queues])
        end = np.minimum(empty + DEFAULT_BATCH, queue_starts[queues + 1])
        is_near = np.zeros(len(positions) + 1, np.int64)
        np.add.at(is_near, first, 1)
        np.add.at(is_near, end, -1)
        near = np.append(0, np.cumsum(np.cumsum(is_near[:-1]) > 0))
        counts[list(match_set.windows), :, window_loops.UNCERTAIN] += np.diff(near[queue_starts])


def _first_matches(bits: Words, bounds: Int64s) -> Int64s:
    """The first set bit of each queue, or else its end."""
    if not bits.any():
        return bounds[1:]
    matching = np.append(np.flatnonzero(packed_bits.unpack(bits, int(bounds[-1]))), bounds[-1])
    stops: Int64s = np.minimum(matching[np.searchsorted(matching, bounds[:-1])], bounds[1:])
    return stops
