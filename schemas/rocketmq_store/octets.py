"""Stores and searches eight bytes at a time, for compiled loops over texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import compiled

Bytes = NDArray[np.uint8]
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_TWOS = np.uint64(0x0202020202020202)


@compiled
def store(data: Bytes, at: int, word: np.uint64) -> None:
    """Writes a word as eight bytes from ``at`` on: the reverse of load_word."""
    i = np.uint64(at)
    for j in range(8):
        data[i + np.uint64(j)] = np.uint8(word >> np.uint64(8 * j))


@compiled
def find_two(data: Bytes, start: int, end: int) -> int:
    """The first byte 0x02 from ``start`` on, or ``end``; up to seven bytes after ``end`` are read."""
    at = start
    while at < end:
        different = load_word(data, at) ^ _TWOS
        zeros = (different - _ONES) & ~different & _HIGH_BITS  # the lowest bit set is right, those above may not be
        if zeros:
            return min(end, at + lowest_byte(zeros))
        at += 8
    return end


@compiled
def lowest_byte(word: np.uint64) -> int:
    """The index of the lowest byte of ``word`` whose high bit is set."""
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    return int(np.int64(((below & _ONES) * _ONES) >> np.uint64(56))) - 1
