"""The three filters over packed bits, for many pull windows at once."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.words import count_ones
from filtering.numba_compile import Array, compiled

COUNTS = (
    "passed_stage1", "passed_stage2", "delivered", "bit_map_false_positives", "evaluation_errors", "dropped_by_hook",
    "uncertain",
)  # fmt: skip
PASSED_STAGE1, PASSED_STAGE2, DELIVERED, BIT_MAP_FALSE_POSITIVES, EVALUATION_ERRORS, DROPPED_BY_HOOK, UNCERTAIN = range(
    len(COUNTS)
)
TAGS, EXPRESSION, CLIENT_TAGS, FAILURE, MASK, LIVE = range(6)
"""The columns of ``windows``: four rows of ``bits``, one of ``masks``, and one of ``live_entries`` (-1: no bit map)."""
EVERYTHING, NOTHING = 0, 1
"""The first two rows of ``masks`` and ``live_entries``."""

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled
def count_range(bits: Array, start: int, end: int) -> int:
    """The number of set bits of ``bits`` in positions [start, end)."""
    if start >= end:
        return 0
    first, last = start >> 6, (end - 1) >> 6
    head = _ALL << np.uint64(start & 63)
    tail = _ALL >> np.uint64(63 - ((end - 1) & 63))
    if first == last:
        return int(count_ones(bits[first] & head & tail))
    ones = count_ones(bits[first] & head) + count_ones(bits[last] & tail)
    for word in range(first + 1, last):
        ones += count_ones(bits[word])
    return int(ones)


def counts_between(bits: Array, starts: Array, ends: Array) -> list[int]:
    """The number of set bits of ``bits`` in each range [start, end)."""
    return [count_range(bits, start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@compiled
def fill_mask(
    times: Array,
    queue_offsets: Array,
    bounds: Array,
    stored_from: int,
    stored_to: int,
    offsets_from: Array,
    offsets_to: Array,
    mask: Array,
) -> None:
    """Sets the bits of entries in a time window and in the offset range of their queue. ``mask`` must be all zeros."""
    for queue in range(len(bounds) - 1):
        low, high = offsets_from[queue], offsets_to[queue]
        for row in range(bounds[queue], bounds[queue + 1]):
            if stored_from <= times[row] < stored_to and low <= queue_offsets[row] < high:
                mask[row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled
def clear_elsewhere(places: Array, bounds: Array, places_from: Array, places_to: Array, mask: Array) -> None:
    """Clears the bits of entries whose physical offset is outside the range of their queue."""
    for queue in range(len(bounds) - 1):
        low, high = places_from[queue], places_to[queue]
        for row in range(bounds[queue], bounds[queue + 1]):
            if not low <= places[row] < high:
                mask[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))


@compiled
def filter_windows(
    windows: Array,
    first: int,
    bits: Array,
    planes: Array,
    bit_pos: Array,
    live_entries: Array,
    masks: Array,
    bounds: Array,
    counts: Array,
    received: Array,
    received_of: Array,
    dropped: Array,
    dropped_of: Array,
) -> tuple[int, int, int]:
    """Runs the windows from ``first`` on until one of the outputs is full.

    ``bits``: predicates x words; ``planes``: one row for each position of the filter bit map; ``bit_pos``: windows x
    positions; ``live_entries``: for each born time, the entries whose bit map is used (ConsumerFilterData.isMsgInLive);
    ``masks``: the entries of a window. ``counts`` (windows x queues x COUNTS) is filled; no hook drops entries here. If
    a window did not receive just the matches of its expression, its entries go to the next row of ``received`` and its
    number to ``received_of``. Entries that its client dropped go to ``dropped`` and ``dropped_of``. Returns the first
    window that is not done, and the number of rows used of both outputs.
    """
    words = bits.shape[1]
    stage1, stage2 = np.empty(words, np.uint64), np.empty(words, np.uint64)
    false_positives, failed = np.empty(words, np.uint64), np.empty(words, np.uint64)
    hit = np.empty(words, np.uint64)
    own = lost = 0
    for window in range(first, len(windows)):
        if own == len(received) or lost == len(dropped):
            return window, own, lost
        if windows[window, MASK] == NOTHING:
            continue
        tags, expression = bits[windows[window, TAGS]], bits[windows[window, EXPRESSION]]
        client, failure = bits[windows[window, CLIENT_TAGS]], bits[windows[window, FAILURE]]
        mask, live = masks[windows[window, MASK]], windows[window, LIVE]
        result, rest = received[own], dropped[lost]
        differs = drops = fails = false_hits = np.uint64(0)
        for word in range(words):
            stage1[word] = tags[word] & mask[word]
        if live >= 0:
            decided = live_entries[live]
            for word in range(words):  # Numba takes seconds to compile hit[:] = decided.
                hit[word] = decided[word]
            for position in bit_pos[window]:
                _and(hit, planes[position])
            for word in range(words):
                passes = stage1[word] & (hit[word] | ~decided[word])
                stage1[word] = passes
                false_positives[word] = passes & decided[word] & ~expression[word]
                false_hits |= false_positives[word]
        for word in range(words):
            returned = stage1[word] & expression[word]
            stage2[word] = returned
            result[word] = returned & client[word]
            rest[word] = returned & ~client[word]
            failed[word] = failure[word] & mask[word]
            differs |= result[word] ^ expression[word]
            drops |= rest[word]
            fails |= failed[word]
        any_received = False
        for queue in range(len(bounds) - 1):
            start, end = bounds[queue], bounds[queue + 1]
            cell = counts[window, queue]
            cell[PASSED_STAGE1] = count_range(stage1, start, end)
            cell[PASSED_STAGE2] = count_range(stage2, start, end)
            cell[DELIVERED] = count_range(result, start, end) if drops else cell[PASSED_STAGE2]
            if false_hits:
                cell[BIT_MAP_FALSE_POSITIVES] = count_range(false_positives, start, end)
            if fails:
                cell[EVALUATION_ERRORS] = count_range(failed, start, end)
            any_received |= cell[DELIVERED] > 0
        if differs and any_received:
            received_of[own] = window
            own += 1
        if drops:
            dropped_of[lost] = window
            lost += 1
    return len(windows), own, lost


@compiled
def _and(bits: Array, other: Array) -> None:
    for word in range(len(bits)):
        bits[word] &= other[word]
