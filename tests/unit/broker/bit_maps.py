"""Filter bit maps as the broker makes them, one key at a time."""

from __future__ import annotations

from collections.abc import Iterable

from filtering.bloom_filter import BloomFilter


def bit_map(bloom_filter: BloomFilter, keys: Iterable[str]) -> bytes:
    """``m`` / 8 bytes with the positions of every key set, least significant bit first."""
    bits = bytearray(bloom_filter.m // 8)
    for key in keys:
        for position in bloom_filter.bit_positions(key):
            bits[position // 8] |= 1 << position % 8
    return bytes(bits)
