"""Loops over texts: they parse numbers.

A block of short decimals is parsed at once, by loops without branches that LLVM turns into vector instructions. Other
texts are parsed one by one.
"""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.long_numbers import MINUS, PLUS, parse_double, parse_integer
from filtering.matcher.kernels.short_texts import BLOCK, MISSING, Texts, load_texts
from filtering.matcher.kernels.words import count_ones
from filtering.numba_compile import Array, Int, compiled

_MOST_DIGITS = 8
_TENS = 10.0 ** np.arange(_MOST_DIGITS + 1)
_VALUE_BITS = np.int64(2**63 - 1)
_NO_POINT, _NOT_PLAIN, _MISSING = np.int64(-1), np.int64(-2), np.int64(-3)

# Eight octets at once: Mula and Lemire, "Quickly parsing eight digits", 2018.
_ZEROS, _POINTS = np.uint64(0x3030303030303030), np.uint64(0x2E2E2E2E2E2E2E2E)
_ONES, _HIGH, _ABOVE_NINE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0x7676767676767676)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_TO_PAIRS, _TO_FOURS, _TO_EIGHT = np.uint64(2561), np.uint64(6553601), np.uint64(42949672960001)
_ALL = np.uint64(2**64 - 1)
_NONE, _1, _3, _7, _8, _16, _32 = (np.uint64(number) for number in (0, 1, 3, 7, 8, 16, 32))


@compiled
def is_minus(word: Int) -> Int:
    """Whether the first octet of a text is a minus."""
    return np.uint8(word) == MINUS


@compiled
def short_decimals(words: Array, lengths: Array, values: Array, decimals: Array) -> None:
    """Parses texts of up to 8 octets after their sign: the digits as one number, and how many of them follow a point.

    ``decimals`` is -1 without a point, -2 if the text is longer or no plain decimal, -3 if it is missing.
    """
    for i in range(len(words)):
        word = words[i]
        has_sign = np.uint64((np.uint8(word) == MINUS) | (np.uint8(word) == PLUS))
        word >>= has_sign << _3
        length = np.uint64(lengths[i]) - has_sign
        is_plain = length - _1 < _8
        length = length if is_plain else _1
        points = word ^ _POINTS
        points = (points - _ONES) & ~points & _HIGH & (_ALL >> ((_8 - length) << _3))
        before = ((points & (~points + _1)) - _1) >> _7 if points else _ALL
        word = (word & before) | ((word >> _8) & ~before)
        digits = length - _1 if points else length
        is_plain &= digits > _NONE
        after = np.int64(digits) - (count_ones(before) >> 3) if points else _NO_POINT
        digits = digits if is_plain else _1
        word = (word ^ _ZEROS) << ((_8 - digits) << _3)
        is_plain &= not ((word + _ABOVE_NINE) | word) & _HIGH
        word = ((word * _TO_PAIRS) >> _8) & _PAIRS
        word = ((word * _TO_FOURS) >> _16) & _FOURS
        values[i] = np.int64((word * _TO_EIGHT) >> _32)
        after = after if is_plain else _NOT_PLAIN
        decimals[i] = after if lengths[i] != MISSING else _MISSING


@compiled
def put_integers(words: Array, values: Array, numbers: Array) -> None:
    """Gives the digits of short_decimals (``values``) the signs of their texts (``words``)."""
    for i in range(len(words)):
        sign = np.int64(is_minus(words[i]))
        numbers[i] = (values[i] ^ -sign) + sign


@compiled
def put_doubles(words: Array, values: Array, decimals: Array, doubles: Array) -> None:
    """Like put_integers, for doubles: divides by ten for each of the ``decimals``."""
    for i in range(len(words)):
        double = np.float64(values[i]) / _TENS[max(0, decimals[i])]
        doubles[i] = -double if is_minus(words[i]) else double


@compiled
def mark(decimals: Array, is_integer: bool, is_number: Array, odd: Array) -> bool:
    """Marks the numbers, and the texts that short_decimals does not parse. Returns whether there are such texts."""
    most = _NO_POINT if is_integer else _MOST_DIGITS
    some = False
    for i in range(len(decimals)):
        is_number[i] = (decimals[i] > _NOT_PLAIN) & (decimals[i] <= most)
    for i in range(len(decimals)):
        odd[i] = decimals[i] == _NOT_PLAIN
    for i in range(len(decimals)):
        some |= odd[i]
    return some


@compiled
def order_of_doubles(numbers: Array) -> None:
    """Turns the bits of doubles that are not NaN (int64) into their double_order."""
    for i in range(len(numbers)):
        numbers[i] ^= (numbers[i] >> 63) & _VALUE_BITS


@compiled
def parse_block(
    texts: Texts,
    first: Int,
    greatest: Int,
    numbers: Array,
    doubles: Array,
    is_number: Array,
    odd: Array,
    scratch: Array,
) -> int:
    """Like parse, for up to BLOCK rows from ``first`` on. ``scratch``: int64, shape (4, BLOCK)."""
    octets, offsets, _, _, positions = texts
    used = len(numbers)
    words, lengths = scratch[0, :used].view(np.uint64), scratch[1, :used]
    values, decimals = scratch[2, :used], scratch[3, :used]
    load_texts(texts, first, lengths, words)
    short_decimals(words, lengths, values, decimals)
    if greatest:
        put_integers(words, values, numbers)
    else:
        put_doubles(words, values, decimals, doubles)
    count = 0
    if mark(decimals, greatest > 0, is_number, odd):
        for i in range(used):
            if odd[i]:
                start = np.int64(offsets[positions[first + i] if len(positions) > 0 else first + i])
                end = start + lengths[i]
                if greatest:
                    parse_integer(octets, start, end, greatest, i, numbers, is_number)
                    odd[i] = False
                else:
                    odd[i] = not parse_double(octets, start, end, i, doubles, is_number)
                count += odd[i]
    if not greatest:
        order_of_doubles(numbers)
    return count


@compiled
def parse(texts: Texts, greatest: Int, numbers: Array, is_number: Array, odd: Array) -> int:
    """Parses numbers. Returns how many texts are left to be parsed; ``odd`` marks them.

    ``greatest``: the greatest number of the integer type, or 0 for doubles.
    """
    count, scratch = 0, np.empty((4, BLOCK), np.int64)
    for first in range(0, len(numbers), BLOCK):
        end = min(first + BLOCK, len(numbers))
        block, doubles = numbers[first:end], numbers[first:end].view(np.float64)
        count += parse_block(texts, first, greatest, block, doubles, is_number[first:end], odd[first:end], scratch)
    return count
