"""The loop of :mod:`filtering.java.hashes`, compiled by Numba."""

from __future__ import annotations

import numpy as np

from filtering.numba_compile import Array, compiled


@compiled
def hash_texts(data: Array, bounds: Array, hashes: Array) -> None:
    """hashes[i] becomes String.hashCode of the text data[bounds[i]:bounds[i + 1]], which is UTF-8.

    A character of one to three bytes is one unit of UTF-16, a character of four bytes is two.
    """
    for row in range(len(hashes)):
        value = np.uint32(0)
        at, end = bounds[row], bounds[row + 1]
        while at < end:
            first = np.uint32(data[at])
            if first < 0x80:
                unit = first
                at += 1
            elif first < 0xE0:
                unit = (first & np.uint32(0x1F)) << np.uint32(6) | _continuation(data, at + 1)
                at += 2
            elif first < 0xF0:
                unit = (first & np.uint32(0x0F)) << np.uint32(12) | _continuation(data, at + 1) << np.uint32(6)
                unit |= _continuation(data, at + 2)
                at += 3
            else:
                point = (first & np.uint32(0x07)) << np.uint32(18) | _continuation(data, at + 1) << np.uint32(12)
                point |= _continuation(data, at + 2) << np.uint32(6) | _continuation(data, at + 3)
                point -= np.uint32(0x10000)
                value = np.uint32(value * np.uint32(31)) + (np.uint32(0xD800) | point >> np.uint32(10))
                unit = np.uint32(0xDC00) | (point & np.uint32(0x3FF))
                at += 4
            value = np.uint32(np.uint32(value * np.uint32(31)) + unit)
        hashes[row] = np.int32(value)


@compiled
def _continuation(data: Array, at: int) -> np.uint32:
    return np.uint32(data[at]) & np.uint32(0x3F)
