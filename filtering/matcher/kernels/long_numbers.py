"""Parses one text as Java does. Says so if it cannot: rare texts are left to Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from filtering.matcher.kernels.nearest_double import nearest_double
from filtering.numba_compile import Array, Int, compiled

PLUS, MINUS = np.uint8(43), np.uint8(45)
_ZERO, _POINT, _SPACE = np.uint8(48), np.uint8(46), np.uint8(32)
_LOWER_CASE, _D, _E, _F, _P, _X = (np.uint8(ord(character)) for character in " defpx")
_NAN, _INFINITY = (np.frombuffer(text, np.uint8) for text in (b"NaN", b"Infinity"))
_TEN = np.uint64(10)
_ROOM_FOR_A_DIGIT = np.uint64((2**64 - 11) // 10)
"""The greatest value to which one more digit, and 1, can be added in 64 bits."""
_GREATEST_EXPONENT = 10**12
"""A greater exponent counts as this one. No text has so many decimals that they would make up for it."""
ZEROS = (
    *(0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66),
    *(0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90),
    *(0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10),
)
"""The zeros beyond ASCII of Java's Character.digit, in UTF-16 units. The other digits follow each of them."""
_ZEROS = np.array(ZEROS, np.uint32)
_TWO_OCTETS, _THREE_OCTETS, _FOUR_OCTETS = np.uint8(0xC0), np.uint8(0xE0), np.uint8(0xF0)
_LOW_SIX = np.uint32(0x3F)


@compiled
def parse_integer(
    octets: Array, start: Int, end: Int, greatest: Int, at: Int, numbers: Array, is_number: Array
) -> None:
    """Integer.valueOf and Long.valueOf; ``greatest`` is that of the type. The result goes to element ``at``."""
    is_number[at] = False
    negative = start < end and octets[start] == MINUS
    if negative or (start < end and octets[start] == PLUS):
        start += 1
    if start == end:
        return
    value: Int = np.uint64(0)
    i = start
    while i < end:
        digit = np.uint64(octets[i]) - np.uint64(_ZERO)
        i += 1
        if digit >= _TEN:
            if octets[i - 1] < _TWO_OCTETS or octets[i - 1] >= _FOUR_OCTETS:
                return
            size = 1 if octets[i - 1] < _THREE_OCTETS else 2
            digit = _digit_of(octets, i - 1, size)
            i += size
        if digit >= _TEN or value > _ROOM_FOR_A_DIGIT:
            return
        value = value * _TEN + digit
    if value <= np.uint64(greatest) + np.uint64(negative):
        numbers[at] = -np.int64(value) if negative else np.int64(value)
        is_number[at] = True


@compiled
def _digit_of(octets: Array, at: Int, following: Int) -> Int:
    """The value of the character at octets[at], with ``following`` octets more; 10 if it is no digit."""
    point = np.uint32(octets[at]) & (_LOW_SIX >> np.uint32(following))
    for i in range(at + 1, at + 1 + following):
        point = point << np.uint32(6) | np.uint32(octets[i]) & _LOW_SIX
    for zero in _ZEROS:
        if point - zero < 10:
            return np.uint64(point - zero)
    return _TEN


@compiled
def parse_double(octets: Array, start: Int, end: Int, at: Int, doubles: Array, is_number: Array) -> bool:
    """Double.valueOf. Returns False if the text may be a hexadecimal number, or has too many digits to round them.

    The result goes to element ``at`` of ``doubles`` and ``is_number``.
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
    more: Any = False
    i, point, dropped = start, end, 0
    while i < end:
        digit = np.uint8(octets[i] - _ZERO)
        if digit < 10:
            if value <= _ROOM_FOR_A_DIGIT:
                value = value * _TEN + np.uint64(digit)
            else:
                dropped += 1
                more |= digit > 0
        elif octets[i] == _POINT and point == end:
            point = i
        else:
            break
        i += 1
    decimals = i - point - 1 if point < end else 0
    digits = i - start - (1 if point < end else 0)
    if digits == 0:
        if _is(octets, start, end, _NAN):
            doubles[at], is_number[at] = np.nan, True
        elif _is(octets, start, end, _INFINITY):
            doubles[at], is_number[at] = -np.inf if negative else np.inf, True
        return True
    if i == start + 1 and i < end and value == 0 and octets[i] | _LOWER_CASE == _X:
        return not _has_exponent_of_two(octets, i, end)
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
    tens = exponent - decimals + dropped
    double = nearest_double(value, tens)
    if more and nearest_double(value + np.uint64(1), tens) != double:
        return False
    doubles[at] = -double if negative else double
    is_number[at] = True
    return True


@compiled
def _is(octets: Array, start: Int, end: Int, word: Array) -> bool:
    if end - start != len(word):
        return False
    for i in range(len(word)):  # noqa: SIM110  Numba is slow on all()
        if octets[start + i] != word[i]:
            return False
    return True


@compiled
def _has_exponent_of_two(octets: Array, start: Int, end: Int) -> bool:
    """Whether there is a p, without which a text is no hexadecimal number."""
    for i in range(start, end):  # noqa: SIM110  Numba is slow on all()
        if octets[i] | _LOWER_CASE == _P:
            return True
    return False
