"""Loops over numbers: they parse plain decimals, and find the interval of each number."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.numba_compile import Array, Int, compiled
from filtering.matcher.kernels.words import load_word, trailing_zeros

_DIGITS = 18
_EXACT = 2**53
_FEW_CUTS = 16
_TENS = 10.0 ** np.arange(_DIGITS + 1)
_ZERO, _POINT, _PLUS, _MINUS = np.uint8(48), np.uint8(46), np.uint8(43), np.uint8(45)
_VALUE_BITS = np.int64(2**63 - 1)

# Eight octets at once: Mula and Lemire, "Quickly parsing eight digits", 2018.
_KEPT = np.array([2 ** (8 * length) - 1 for length in range(9)], np.uint64)
_ZEROS, _POINTS = np.uint64(0x3030303030303030), np.uint64(0x2E2E2E2E2E2E2E2E)
_ONES, _HIGH, _ABOVE_NINE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0x7676767676767676)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_TO_PAIRS, _TO_FOURS, _TO_EIGHT = np.uint64(2561), np.uint64(6553601), np.uint64(42949672960001)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)


@compiled
def short_decimal(word: Int, length: Int) -> tuple[Int, Int, Int]:
    """Like long_decimal, for the first ``length`` octets of a word."""
    points = word ^ _POINTS
    points = (points - _ONES) & ~points & _HIGH & _KEPT[length]
    decimals = -1
    if points:
        before = trailing_zeros(points) >> 3
        word = (word & _KEPT[before]) | ((word >> _8) & ~_KEPT[before])
        length -= 1
        decimals = length - before
    if length == 0:
        return 0, 0, -1
    digits = ((word ^ _ZEROS) & _KEPT[length]) << np.uint64(64 - 8 * length)
    if ((digits + _ABOVE_NINE) | digits) & _HIGH:
        return 0, 0, -1
    digits = ((digits * _TO_PAIRS) >> _8) & _PAIRS
    digits = ((digits * _TO_FOURS) >> _16) & _FOURS
    return np.int64((digits * _TO_EIGHT) >> _32), length, decimals


@compiled
def long_decimal(octets: Array, start: Int, end: Int) -> tuple[Int, Int, Int]:
    """The value of the digits, their number (0: not a plain decimal), and how many follow a point (-1: no point)."""
    value, point = np.int64(0), end
    for i in range(start, end):
        digit = np.uint8(octets[i] - _ZERO)
        if digit < 10:
            value = value * 10 + np.int64(digit)
        elif octets[i] == _POINT and point == end:
            point = i
        else:
            return 0, 0, -1
    return value, end - start - (1 if point < end else 0), end - point - 1


@compiled
def parse(
    octets: Array,
    offsets: Array,
    validity: Array,
    first_bit: Int,
    positions: Array,
    greatest: Int,
    numbers: Array,
    doubles: Array,
    is_number: Array,
    odd: Array,
) -> None:
    """Parse plain decimals. Other texts are marked in ``odd``.

    ``greatest``: the greatest number of the integer type, or 0 for doubles. ``doubles`` shares the memory of
    ``numbers``.
    """
    has_positions, has_nulls = len(positions) > 0, len(validity) > 0
    for row in range(len(numbers)):
        is_number[row] = odd[row] = False
        numbers[row] = 0
        at = np.int64(positions[row]) if has_positions else row
        if at < 0 or (has_nulls and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            continue
        start, end = np.int64(offsets[at]), np.int64(offsets[at + 1])
        negative = start < end and octets[start] == _MINUS
        if negative or (start < end and octets[start] == _PLUS):
            start += 1
        if end - start <= 8 and start + 8 <= len(octets):
            value, digits, decimals = short_decimal(load_word(octets, start), end - start)
        elif end - start <= _DIGITS + 1:
            value, digits, decimals = long_decimal(octets, start, end)
        else:
            value, digits, decimals = 0, 0, -1
        if digits == 0 or digits > _DIGITS or (greatest == 0 and value > _EXACT):
            odd[row] = True
        elif greatest:
            number = -value if negative else value
            numbers[row] = number
            is_number[row] = decimals < 0 and -greatest - 1 <= number <= greatest
        else:
            double = np.float64(value) / _TENS[max(0, decimals)]
            doubles[row] = -double if negative else double
            if negative:
                numbers[row] ^= _VALUE_BITS
            is_number[row] = True


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
            after = np.int32(0)
            for cut in range(count):
                after += np.int32(cuts[cut] <= numbers[row])
            classes[row] = after if is_number[row] else np.int32(count + 1)
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
