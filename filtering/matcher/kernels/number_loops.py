"""Plain decimals, and the interval that a number falls in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filtering.matcher.kernels.numba_compile import compiled

Array = npt.NDArray[Any]

_DIGITS = 18
_EXACT = 2**53
_TENS = 10.0 ** np.arange(_DIGITS + 1)
_ZERO, _POINT, _PLUS, _MINUS = np.uint8(48), np.uint8(46), np.uint8(43), np.uint8(45)
_VALUE_BITS = np.int64(2**63 - 1)


@compiled
def parse(
    octets: Array,
    offsets: Array,
    validity: Array,
    first_bit: int,
    positions: Array,
    greatest: int,
    numbers: Array,
    doubles: Array,
    is_number: Array,
    odd: Array,
) -> None:
    """``greatest``: of the integer type, or 0 for doubles. ``doubles``: the memory of ``numbers``."""
    for row in range(len(numbers)):
        numbers[row] = 0
        is_number[row] = odd[row] = False
        at = np.int64(positions[row]) if len(positions) else row
        if at < 0 or (len(validity) and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            continue
        start, end = np.int64(offsets[at]), np.int64(offsets[at + 1])
        negative = start < end and octets[start] == _MINUS
        if negative or (start < end and octets[start] == _PLUS):
            start += 1
        value = np.int64(0)
        point = end
        plain = start < end <= start + _DIGITS + 1
        if plain:
            for i in range(start, end):
                digit = np.uint8(octets[i] - _ZERO)
                if digit < 10:
                    value = value * 10 + np.int64(digit)
                elif octets[i] == _POINT and point == end:
                    point = i
                else:
                    plain = False
                    break
        digits = end - start - (1 if point < end else 0)
        if not plain or digits == 0 or digits > _DIGITS:
            odd[row] = True
        elif greatest:
            number = -value if negative else value
            numbers[row] = number
            is_number[row] = point == end and -greatest - 1 <= number <= greatest
        elif value > _EXACT:
            odd[row] = True
        else:
            double = np.float64(value) / _TENS[max(0, end - point - 1)]
            doubles[row] = -double if negative else double
            if negative:
                numbers[row] ^= _VALUE_BITS
            is_number[row] = True


@compiled
def classify(numbers: Array, is_number: Array, cuts: Array, classes: Array) -> None:
    """How many cuts are not greater than the number; one more than there are cuts if there is none."""
    for row in range(len(numbers)):
        number = numbers[row]
        low, count = 0, len(cuts)
        while count > 0:
            half = (count + 1) >> 1
            low += half if cuts[low + half - 1] <= number else 0
            count -= half
        classes[row] = low if is_number[row] else len(cuts) + 1
