"""Loops that parse texts as numbers as Java does, and find the interval between cuts in which each number is.

1. Texts come in blocks. Short decimals are parsed a block at a time, by loops without branches that LLVM turns into
   vector instructions (short_decimals). Others are parsed one by one (parse_integer, parse_double).
2. A decimal becomes the nearest double without big numbers (Lemire, "Number parsing at a gigabyte per second", 2021):
   its digits are multiplied by the first 64 bits of a power of five, and by the next 64 only if the product is too
   close to another double. That this is always enough was proven later (Mushtak and Lemire, "Fast number parsing
   without fallback", 2023).
3. Rare doubles, hexadecimal ones or those with too many digits, are marked ``odd`` and left to Python.
4. A number is compared with all cuts if they are few; else a grid over the numbers says which cuts are near
   (classify).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import count_ones
from filtering.kernels.text_loops import BLOCK, MISSING, Texts, load_texts

_EXACT = np.uint64(2**53)
"""Integers up to this one are doubles. One operation on two doubles rounds once, and is faster than a product."""
_EXACT_TENS = 22
"""10 to this power is a double."""
_EXACT_POWERS_OF_TEN = 10.0 ** np.arange(_EXACT_TENS + 1)
_LEAST_TENS, _GREATEST_TENS = -342, 308
"""For smaller powers of ten, 64 bits of digits round to 0; for greater ones, to infinity."""
_TIES = -4, 23
"""The powers of ten with which a number can be exactly between two doubles."""
_LEAST_INVERSE = -27
"""5 to the power 27 is below 2**64."""
_1, _3, _9, _32, _63 = (np.uint64(number) for number in (1, 3, 9, 32, 63))
_LOW_HALF = np.uint64(2**32 - 1)
_MAY_CARRY = np.uint64(2**9 - 1)


def _power_of_five(exponent: int) -> int:
    """The first 128 bits of a power of five. The digits may be a multiple of its inverse if that is below 2**64: then
    the power is rounded up, so that their product is not too small."""
    power: int = 5 ** abs(exponent)
    bits = power.bit_length()
    if exponent < 0:
        return (1 << (bits + 127)) // power + (exponent >= _LEAST_INVERSE)
    return power << (128 - bits) if bits <= 128 else power >> (bits - 128)


_POWERS = [_power_of_five(exponent) for exponent in range(_LEAST_TENS, _GREATEST_TENS + 1)]
_POWERS_HIGH = np.array([power >> 64 for power in _POWERS], np.uint64)
_POWERS_LOW = np.array([power & (2**64 - 1) for power in _POWERS], np.uint64)


@compiled
def nearest_double(digits: Int, tens: Int) -> float:
    """``digits`` (a uint64) times 10 to the power ``tens``. Of two doubles that are as near, the even one."""
    if digits <= _EXACT and -_EXACT_TENS <= tens <= _EXACT_TENS:
        power: float = _EXACT_POWERS_OF_TEN[abs(tens)]
        return float(digits) * power if tens >= 0 else float(digits) / power
    if digits == 0 or tens < _LEAST_TENS:
        return 0.0
    if tens > _GREATEST_TENS:
        return math.inf
    zeros = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if digits >> np.uint64(64 - shift) == 0:
            digits <<= np.uint64(shift)
            zeros += shift
    high, low = _product(digits, _POWERS_HIGH[tens - _LEAST_TENS])
    if high & _MAY_CARRY == _MAY_CARRY:
        more, _ = _product(digits, _POWERS_LOW[tens - _LEAST_TENS])
        low += more
        high += np.uint64(low < more)
    first = high >> _63
    rounded = high >> (first + _9)
    # 217706 / 2**16 is the logarithm of 10 to the base 2.
    exponent = ((217706 * tens) >> 16) + 1086 + np.int64(first) - zeros
    if exponent <= 0:
        if exponent < -62:
            return 0.0
        rounded >>= np.uint64(1 - exponent)
        exponent = 1
    elif low <= _1 and _TIES[0] <= tens <= _TIES[1] and rounded & _3 == _1 and rounded << (first + _9) == high:
        rounded -= _1
    return math.ldexp(np.float64((rounded + (rounded & _1)) >> _1), exponent - 1075)


@compiled
def _product(left: Int, right: Int) -> tuple[Int, Int]:
    """The high and the low 64 bits of a product."""
    left_high, left_low = left >> _32, left & _LOW_HALF
    right_high, right_low = right >> _32, right & _LOW_HALF
    lowest = left_low * right_low
    middle = left_high * right_low + (lowest >> _32)
    other = left_low * right_high + (middle & _LOW_HALF)
    return left_high * right_high + (middle >> _32) + (other >> _32), (other << _32) | (lowest & _LOW_HALF)


# One text. Says so if it leaves it to Python.


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
_OTHER_ZEROS = np.array(ZEROS, np.uint32)
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
    for zero in _OTHER_ZEROS:
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


# Blocks of texts.


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
_NONE, _7, _8, _16 = (np.uint64(number) for number in (0, 7, 8, 16))


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


# Numbers to intervals between cuts.


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
        block, is_number_block = numbers[: end - first], is_number[: end - first]
        count += parse_block(
            texts, first, greatest, block, block.view(np.float64), is_number_block, odd[first:end], scratch
        )
        classify(block, is_number_block, cuts, cut_count, shift, grid, in_cell, classes[first:end])
    return count
