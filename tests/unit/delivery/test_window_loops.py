"""Counts of set bits in ranges, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from filtering.delivery.topic_filters import counts_between

EDGES = [0, 1, 62, 63, 64, 65, 127, 128, 129, 191, 192, 255, 256]


@pytest.mark.parametrize("density", [0.5, 1.0])
def test_the_set_bits_of_each_range_are_counted(density: float) -> None:
    """Ranges may be empty, and begin and end at any bit of a word."""
    is_set = np.random.default_rng(1).random(256) < density
    bits = np.packbits(is_set, bitorder="little").view(np.uint64)
    starts, ends = (np.array(each) for each in zip(*((a, b) for a in EDGES for b in EDGES if a <= b), strict=True))
    expected = [int(np.count_nonzero(is_set[start:end])) for start, end in zip(starts, ends, strict=True)]
    assert counts_between(bits, starts, ends) == expected
