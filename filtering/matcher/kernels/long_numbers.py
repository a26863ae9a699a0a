"""Parses one text as Java does. Says so if it cannot: rare texts are left to Python and Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np

from filtering.numba_compile import Array, Int, compiled

PLUS, MINUS = np.uint8(43), np.uint8(45)
_ZERO, _POINT, _SPACE = np.uint8(48), np.uint8(46), np.uint8(32)
_LOWER_CASE, _D, _E, _F, _X = np.uint8(32), np.uint8(100), np.uint8(101), np.uint8(102), np.uint8(120)
_FIRST_OF_NAN, _FIRST_OF_INFINITY = np.uint8(78), np.uint8(73)
_TEN = np.uint64(10)
_ROOM_FOR_A_DIGIT = np.uint64((2**64 - 10) // 10)
"""The greatest value to which one more digit can be added in 64 bits."""
_EXACT = np.uint64(2**53)
"""Integers up to this one are doubles."""
_EXACT_TENS = 22
"""10 to this power is a double."""
_TENS = 10.0 ** np.arange(_EXACT_TENS + 1)
_GREATEST_EXPONENT = 10**12
"""A greater exponent counts as this one. No text has so many decimals that they would make up for it."""
FIRST_OCTETS_OF_DIGITS = (0xD9, 0xDB, 0xDF, 0xE0, 0xE1, 0xEA, 0xEF)
"""In UTF-8, those of the digits that Java's Character.digit knows beyond ASCII, in UTF-16 units."""
_MAY_BE_DIGIT = np.isin(np.arange(256), FIRST_OCTETS_OF_DIGITS)


@compiled
def parse_integer(
    octets: Array, start: Int, end: Int, greatest: Int, at: Int, numbers: Array, is_number: Array
) -> bool:
    """Integer.valueOf and Long.valueOf. Returns False if the text may have digits beyond ASCII.

    ``greatest``: the greatest number of the type. The result goes to element ``at`` of ``numbers`` and ``is_number``.
    """
    is_number[at] = False
    negative = start < end and octets[start] == MINUS
    if negative or (start < end and octets[start] == PLUS):
        start += 1
    value, fits = np.uint64(0), start < end
    for i in range(start, end):
        digit = np.uint8(octets[i] - _ZERO)
        if digit >= 10:
            return not _MAY_BE_DIGIT[octets[i]]
        fits &= value <= _ROOM_FOR_A_DIGIT
        value = value * _TEN + np.uint64(digit)
    if fits and value <= np.uint64(greatest) + np.uint64(negative):
        numbers[at] = -np.int64(value) if negative else np.int64(value)
        is_number[at] = True
    return True


@compiled
def parse_double(octets: Array, start: Int, end: Int, at: Int, doubles: Array, is_number: Array) -> bool:
    """Double.valueOf. Returns False if the text may be a number that one exact operation does not give.

    Digits of up to 2^53, times or divided by a power of ten up to 10^22, are rounded once (Clinger, "How to read
    floating point numbers accurately", 1990). The result goes to element ``at`` of ``doubles`` and ``is_number``.
    """
    is_number[at] = False
    while start < end and octets[start] <= _SPACE:
        start += 1
    while start < end and octets[end - 1] <= _SPACE:
        end -= 1
    negative = start < end and octets[start] == MINUS
    if negative or (start < end and octets[start] == PLUS):
        start += 1
    value: Int = np.uint64(0)
    fits: Any = True
    i, point = start, end
    while i < end:
        digit = np.uint8(octets[i] - _ZERO)
        if digit < 10:
            fits &= value <= _ROOM_FOR_A_DIGIT
            value = value * _TEN + np.uint64(digit)
        elif octets[i] == _POINT and point == end:
            point = i
        else:
            break
        i += 1
    decimals = i - point - 1 if point < end else 0
    digits = i - start - (1 if point < end else 0)
    if digits == 0:
        return not (i < end and (octets[i] == _FIRST_OF_NAN or octets[i] == _FIRST_OF_INFINITY))
    if i == start + 1 and i < end and value == 0 and octets[i] | _LOWER_CASE == _X:
        return False
    exponent: Int = 0
    if i < end and octets[i] | _LOWER_CASE == _E:
        i += 1
        is_smaller = i < end and octets[i] == MINUS
        if is_smaller or (i < end and octets[i] == PLUS):
            i += 1
        first = i
        while i < end and np.uint8(octets[i] - _ZERO) < 10:
            exponent = min(exponent * 10 + np.int64(octets[i] - _ZERO), _GREATEST_EXPONENT)
            i += 1
        if i == first:
            return True
        exponent = -exponent if is_smaller else exponent
    if i < end and (octets[i] | _LOWER_CASE == _D or octets[i] | _LOWER_CASE == _F):
        i += 1
    if i < end:
        return True
    tens = exponent - decimals
    if not fits or value > _EXACT or not -_EXACT_TENS <= tens <= _EXACT_TENS:
        return False
    double = np.float64(value) * _TENS[tens] if tens >= 0 else np.float64(value) / _TENS[-tens]
    doubles[at] = -double if negative else double
    is_number[at] = True
    return True
