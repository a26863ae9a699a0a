"""The Bloom filter behind filter bit maps.

Source: org.apache.rocketmq.filter.util.BloomFilter and BitsArray; the double hashing is that of
Kirsch and Mitzenmacher, "Less Hashing, Same Performance" (2006).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral

import mmh3

from filtering.counted import check_type
from filtering.java import INT_MAX


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Each key sets ``k`` bits in a bit map of ``m`` bits; ``n`` keys give an error rate of ``f`` %."""

    f: int
    n: int
    k: int
    m: int

    @classmethod
    def create_by_fn(cls, f: int, n: int) -> BloomFilter:
        """The filter for an error rate of ``f`` % (1 to 99) with ``n`` keys (1 or more).

        Raises ValueError for other values.
        """
        if not isinstance(f, Integral) or not isinstance(n, Integral):
            raise TypeError(f"f and n are whole numbers, not {f!r} and {n!r}")
        if not 1 <= f < 100:
            raise ValueError("f must be greater or equal than 1 and less than 100")
        if n < 1:
            raise ValueError("n must be greater than 0")
        error_rate = f / 100
        k = math.ceil(math.log(error_rate) / math.log(0.5))
        bits = math.ceil(n * (math.log(1 / error_rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(f, n, k, min(8 * math.ceil(min(bits, INT_MAX) / 8), INT_MAX))

    def bit_positions(self, key: str) -> tuple[int, ...]:
        """The ``k`` positions of ``key``, each in [0, m); they may repeat."""
        check_type(key, str, "a key is a text, such as 'cg_paid#OrderEvents'")
        low = mmh3.hash64(key.encode("utf-8", "replace"), x64arch=True, signed=False)[0]
        hash1, hash2 = low & 0xFFFFFFFF, low >> 32
        positions = []
        for i in range(1, self.k + 1):
            combined = (hash1 + i * hash2) & 0xFFFFFFFF
            if combined & 0x8000_0000:
                combined ^= 0xFFFFFFFF
            positions.append(combined % self.m)
        return tuple(positions)

    def bit_map(self, keys: Iterable[str]) -> bytes:
        """One bit for each of the ``m`` with the positions of every key set, least significant bit first."""
        if isinstance(keys, str):
            raise TypeError("keys must be a list of texts, not one text")
        bits = bytearray(math.ceil(self.m / 8))
        for key in keys:
            for position in self.bit_positions(key):
                bits[position // 8] |= 1 << position % 8
        return bytes(bits)


def is_hit(bit_map: bytes, positions: Iterable[int]) -> bool:
    """Whether every position is set in ``bit_map`` (least significant bit first)."""
    return all(bit_map[position // 8] >> position % 8 & 1 for position in positions)
