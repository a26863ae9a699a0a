"""Loops over numbers: they find the interval between cuts of each number."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.decimal_loops import parse_block
from filtering.matcher.kernels.numba_compile import Array, Int, compiled
from filtering.matcher.kernels.short_texts import BLOCK

_FEW_CUTS = 32
"""Up to this number, comparing each number with each cut is cheaper than searching."""


@compiled
def fill_grid(cuts: Array, shift: Int, grid: Array) -> None:
    """grid[i] is the number of cuts in cells before i. Cell i starts i << shift after the first cut."""
    cut = 0
    for cell in range(len(grid)):
        while cut < len(cuts) and np.uint64(cuts[cut] - cuts[0]) >> np.uint64(shift) < np.uint64(cell):
            cut += 1
        grid[cell] = cut


@compiled
def classify(numbers: Array, is_number: Array, cuts: Array, shift: Int, grid: Array, classes: Array) -> None:
    """The number of cuts that are not greater than each number; one more than all cuts if it is not a number."""
    count = len(cuts)
    if count <= _FEW_CUTS:
        # The processor compares several numbers at once.
        for row in range(len(numbers)):
            classes[row] = 0
        for cut in range(count):
            for row in range(len(numbers)):
                classes[row] += np.int32(cuts[cut] <= numbers[row])
        for row in range(len(numbers)):
            classes[row] = classes[row] if is_number[row] else np.int32(count + 1)
        return
    for row in range(len(numbers)):
        number = numbers[row]
        inside: Int = min(max(number, cuts[0]), cuts[count - 1])
        cell = np.int64(np.uint64(inside - cuts[0]) >> np.uint64(shift))
        low: Int = np.int64(grid[cell])
        high: Int = np.int64(grid[cell + 1])
        while high - low > 1:
            middle = (low + high) >> 1
            if cuts[middle] <= number:
                low = middle
            else:
                high = middle
        # No branch depends on the number: the processor could not predict it.
        is_after = (high > low) & (cuts[min(low, count - 1)] <= number)
        classes[row] = low + np.int64(is_after) if is_number[row] else count + 1


@compiled
def parse_and_classify(
    octets: Array,
    offsets: Array,
    validity: Array,
    first_bit: Int,
    positions: Array,
    greatest: Int,
    cuts: Array,
    shift: Int,
    grid: Array,
    classes: Array,
    odd: Array,
) -> int:
    """Like parse, with the class of each number instead of the number: see classify. Classes of ``odd`` are wrong."""
    numbers, is_number = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.bool_)
    count, scratch = 0, np.empty((4, BLOCK), np.int64)
    for first in range(0, len(classes), BLOCK):
        end = min(first + BLOCK, len(classes))
        block, found = numbers[: end - first], is_number[: end - first]
        count += parse_block(
            octets, offsets, validity, first_bit, positions, first, greatest, block, block.view(np.float64), found,
            odd[first:end], scratch,
        )  # fmt: skip
        classify(block, found, cuts, shift, grid, classes[first:end])
    return count
