"""Rounds a decimal number to the nearest double (Lemire, "Number parsing at a gigabyte per second", 2021).

The digits are multiplied by the first 64 bits of a power of five, and by the next 64 only if the product is too close
to another double. That this is always enough was proven later (Mushtak and Lemire, "Fast number parsing without
fallback", 2023).
"""

from __future__ import annotations

import math

import numpy as np

from filtering.numba_compile import Int, compiled

_EXACT = np.uint64(2**53)
"""Integers up to this one are doubles. One operation on two doubles rounds once, and is faster than a product."""
_EXACT_TENS = 22
"""10 to this power is a double."""
_TENS = 10.0 ** np.arange(_EXACT_TENS + 1)
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
_HIGH = np.array([power >> 64 for power in _POWERS], np.uint64)
_LOW = np.array([power & (2**64 - 1) for power in _POWERS], np.uint64)


@compiled
def nearest_double(digits: Int, tens: Int) -> float:
    """``digits`` (a uint64) times 10 to the power ``tens``. Of two doubles that are as near, the even one."""
    if digits <= _EXACT and -_EXACT_TENS <= tens <= _EXACT_TENS:
        power: float = _TENS[abs(tens)]
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
    high, low = _product(digits, _HIGH[tens - _LEAST_TENS])
    if high & _MAY_CARRY == _MAY_CARRY:
        more, _ = _product(digits, _LOW[tens - _LEAST_TENS])
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
