"""Loops over numbers: they find the interval between cuts of each number."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.decimal_loops import parse_block
from filtering.matcher.kernels.short_texts import BLOCK, Texts
from filtering.numba_compile import Array, Int, compiled

_FEW_CUTS = 32
"""Up to this number, comparing each number with each cut is cheaper than searching."""
_FEW_IN_CELL = 6
"""Up to this number of cuts in a cell, comparing each number with as many is cheaper than searching."""


@compiled
def fill_grid(cuts: Array, shift: Int, grid: Array) -> None:
    """grid[i] is the number of cuts in cells before i. Cell i starts i << shift after the first cut."""
    cut = 0
    for cell in range(len(grid)):
        while cut < len(cuts) and np.uint64(cuts[cut] - cuts[0]) >> np.uint64(shift) < np.uint64(cell):
            cut += 1
        grid[cell] = cut


@compiled
def compare_all(numbers: Array, cuts: Array, count: Int, classes: Array) -> None:
    """Compares each number with all of the ``count`` cuts: classes[i] is how many are not greater than numbers[i]."""
    classes[:] = 0
    for cut in range(count):
        for row in range(len(numbers)):
            classes[row] += np.int32(cuts[cut] <= numbers[row])


@compiled
def compare_in_cell(
    numbers: Array, cuts: Array, count: Int, shift: Int, grid: Array, in_cell: Int, classes: Array
) -> None:
    """Compares each number with ``in_cell`` cuts from its cell on: the cuts of later cells are greater."""
    least, greatest = cuts[0], cuts[count - 1]
    for row in range(len(numbers)):
        inside: Int = min(max(numbers[row], least), greatest)
        classes[row] = grid[np.uint64(inside - least) >> np.uint64(shift)]
    for _ in range(in_cell):
        for row in range(len(numbers)):
            classes[row] += np.int32(cuts[np.uint32(classes[row])] <= numbers[row])


@compiled
def search(numbers: Array, cuts: Array, count: Int, shift: Int, grid: Array, classes: Array) -> None:
    """Searches for each number among the cuts of its cell. The result is that of compare_all."""
    for row in range(len(numbers)):
        number = numbers[row]
        inside: Int = min(max(number, cuts[0]), cuts[count - 1])
        cell = np.int64(np.uint64(inside - cuts[0]) >> np.uint64(shift))
        low: Int = np.int64(grid[cell])
        high: Int = np.int64(grid[cell + 1])
        while low < high:
            middle = (low + high) >> 1
            if cuts[middle] <= number:
                low = middle + 1
            else:
                high = middle
        classes[row] = low


@compiled
def classify(
    numbers: Array, is_number: Array, cuts: Array, count: Int, shift: Int, grid: Array, in_cell: Int, classes: Array
) -> None:
    """The number of cuts that are not greater than each number; one more than all cuts if it is not a number.

    No cell has more than ``in_cell`` cuts. ``cuts`` has ``in_cell`` + 1 more elements after the ``count`` cuts.
    """
    if count <= _FEW_CUTS:
        compare_all(numbers, cuts, count, classes)
    elif in_cell <= _FEW_IN_CELL:
        compare_in_cell(numbers, cuts, count, shift, grid, in_cell, classes)
    else:
        search(numbers, cuts, count, shift, grid, classes)
    for row in range(len(numbers)):
        classes[row] = min(classes[row], np.int32(count)) if is_number[row] else np.int32(count + 1)


@compiled
def parse_and_classify(
    texts: Texts,
    greatest: Int,
    cuts: Array,
    cut_count: Int,
    shift: Int,
    grid: Array,
    in_cell: Int,
    classes: Array,
    odd: Array,
) -> int:
    """Like parse, with the class of each number instead of the number: see classify. Classes of ``odd`` are wrong."""
    numbers, is_number = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.bool_)
    count, scratch = 0, np.empty((4, BLOCK), np.int64)
    for first in range(0, len(classes), BLOCK):
        end = min(first + BLOCK, len(classes))
        block, found = numbers[: end - first], is_number[: end - first]
        count += parse_block(texts, first, greatest, block, block.view(np.float64), found, odd[first:end], scratch)
        classify(block, found, cuts, cut_count, shift, grid, in_cell, classes[first:end])
    return count
