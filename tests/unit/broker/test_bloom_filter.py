"""Bit positions and bit maps, compared with those of a real broker's BloomFilter."""

import pytest

from filtering.bloom_filter import BloomFilter, is_hit
from tests.unit.broker import cases


def test_positions_are_the_brokers() -> None:
    for case in cases("bloom"):
        if case["error"]:
            with pytest.raises(ValueError, match=case["error"]):
                BloomFilter.create_by_fn(case["f"], case["n"])
            continue
        bloom_filter = BloomFilter.create_by_fn(case["f"], case["n"])
        assert (bloom_filter.k, bloom_filter.m) == (case["k"], case["m"]), case
        assert list(bloom_filter.bit_positions(case["key"])) == case["bitPos"], case


def test_bit_maps_are_the_brokers() -> None:
    for case in cases("bloom_bitmaps"):
        bloom_filter = BloomFilter.create_by_fn(case["f"], case["n"])
        bits = bloom_filter.bit_map(case["keys"])
        assert bits.hex() == case["hex"], case
        for probe in case["probes"]:
            assert is_hit(bits, bloom_filter.bit_positions(probe["key"])) == probe["hit"], (case, probe)


def test_sizes_beyond_an_int_are_the_greatest_int() -> None:
    """Java's casts end there; the broker's answer for 700,000,000 groups is 2,147,483,647 bits."""
    assert BloomFilter.create_by_fn(20, 700_000_000).m == 2**31 - 1
    assert BloomFilter.create_by_fn(1, 2**31 - 1).m == 2**31 - 1
