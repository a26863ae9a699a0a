"""Operations on words of 64 bits. LLVM compiles each of these loops to one or two instructions."""

from __future__ import annotations

import numpy as np

from filtering.numba_compile import Array, Int, compiled

_ONE, _TWO, _FOUR, _TOP_OCTET = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_EACH_OCTET = np.uint64(0x0101010101010101)
_HALF_OF_TWO, _HALF_OF_FOUR, _HALF_OF_EIGHT = (
    np.uint64(0x5555555555555555),
    np.uint64(0x3333333333333333),
    np.uint64(0x0F0F0F0F0F0F0F0F),
)


@compiled
def load_word(octets: Array, at: Int) -> Int:
    """The 8 octets from octets[at] on as a uint64. They need not be aligned."""
    first = np.uint64(at)
    word = np.uint64(octets[first])
    word |= np.uint64(octets[first + np.uint64(1)]) << np.uint64(8)
    word |= np.uint64(octets[first + np.uint64(2)]) << np.uint64(16)
    word |= np.uint64(octets[first + np.uint64(3)]) << np.uint64(24)
    word |= np.uint64(octets[first + np.uint64(4)]) << np.uint64(32)
    word |= np.uint64(octets[first + np.uint64(5)]) << np.uint64(40)
    word |= np.uint64(octets[first + np.uint64(6)]) << np.uint64(48)
    word |= np.uint64(octets[first + np.uint64(7)]) << np.uint64(56)
    return word


@compiled
def equal_bits(values: Array, at: Int, value: Int) -> Int:
    """The elements of values[at:at + 64] that equal ``value``, as bits of a uint64."""
    word = np.uint64(0)
    for i in range(64):
        word |= np.uint64(values[np.uint64(at + i)] == value) << np.uint64(i)
    return word


@compiled
def count_ones(word: Int) -> Int:
    """The number of set bits of a uint64."""
    word -= (word >> _ONE) & _HALF_OF_TWO
    word = (word & _HALF_OF_FOUR) + ((word >> _TWO) & _HALF_OF_FOUR)
    return np.int64((((word + (word >> _FOUR)) & _HALF_OF_EIGHT) * _EACH_OCTET) >> _TOP_OCTET)


@compiled
def lowest_one(word: Int) -> Int:
    """The position of the lowest set bit of a uint64 that is not 0."""
    return count_ones((word & (~word + _ONE)) - _ONE)
