"""Bloom filters of Parquet files: whether a row group may have a text in a column, without reading the column.

PyArrow writes them, but does not read them. A filter is a header and blocks of 32 bytes; the hash of a text selects a
block, and one bit in each of its eight words. Source: BloomFilter.md of Parquet's format.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

_WORDS = 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint64
)
_LOW, _HALF, _TOP_BITS = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(27)


def may_contain(bloom_filter: bytes, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Which texts a Bloom filter, with its header, may contain."""
    hashes = np.array([xxh64_intdigest(text.encode()) for text in texts], np.uint64)
    blocks = np.frombuffer(bloom_filter[-_bytes_of_blocks(bloom_filter) :], "<u4").reshape(-1, _WORDS)
    words = blocks[(hashes >> _HALF) * np.uint64(len(blocks)) >> _HALF]
    bits = ((hashes & _LOW)[:, np.newaxis] * _SALTS & _LOW) >> _TOP_BITS
    is_set: NDArray[np.bool_] = (words >> bits & np.uint64(1)).all(axis=1)
    return is_set


def _bytes_of_blocks(bloom_filter: bytes) -> int:
    """The header's first field, a varint in zigzag encoding behind the field's type."""
    encoded = shift = 0
    for octet in bloom_filter[1:]:
        encoded |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    return encoded >> 1
