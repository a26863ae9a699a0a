"""Whether a filter bit map pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from answers.advise import TopicLoad, bit_map_advice, false_positive_rate
from filtering.bloom_filter import BloomFilter

SELECTIVE = TopicLoad(
    messages=10_000, message_bytes=500, groups=20, dead_groups=0, sent_with_pull=0, tag_groups=3, scanned=200_000,
    passed_stage1=200_000, matched=10_000, false_positives=None,
)  # fmt: skip
USUAL = BloomFilter.create_by_fn(20, 32)


@pytest.mark.parametrize(
    ("load", "use", "reason"),
    [
        (SELECTIVE, True, "it saves 95% of the reads"),
        (replace(SELECTIVE, matched=180_000), False, "of the reads: most messages match, or pass without a match"),
        (replace(SELECTIVE, groups=0, scanned=0, matched=0, sent_with_pull=2), False,
         "no group would use it: 3 use tags, 2 send their subscription with the pull"),
        (replace(SELECTIVE, groups=0, tag_groups=0, scanned=0, matched=0), False, "no group subscribes by SQL92"),
        (replace(SELECTIVE, scanned=0, matched=0), False, "its groups have pulled nothing so far"),
        (replace(SELECTIVE, groups=1, scanned=10_000, matched=5_000, message_bytes=100, messages=100_000), False,
         "its extension takes more bytes than those reads"),
        (replace(SELECTIVE, message_bytes=1), True, "it saves 95% of the reads"),
    ],
)  # fmt: skip
def test_the_verdict_has_a_reason(load: TopicLoad, use: bool, reason: str) -> None:
    advice = bit_map_advice(load, USUAL)
    assert (advice.use, reason in advice.reason) == (use, True)


def test_numbers_follow_from_the_load() -> None:
    advice = bit_map_advice(replace(SELECTIVE, dead_groups=5, passed_stage1=11_900, false_positives=1_900), USUAL)
    assert advice.store_evaluations == 250_000
    assert (advice.reads_without, advice.reads_with) == (200_000, 11_900)
    assert (advice.saved_bytes, advice.extension_bytes) == (188_100 * 500, 10_000 * (20 + 14))
    assert advice.measured_rate == 0.01


def test_messages_older_than_the_filters_are_read_and_do_not_count_in_the_rate() -> None:
    advice = bit_map_advice(replace(SELECTIVE, passed_stage1=60_000, false_positives=1_400), USUAL)
    assert advice.reads_with == 60_000
    assert advice.saved_bytes == 140_000 * 500
    assert advice.measured_rate == 1_400 / (200_000 - 60_000 + 1_400)


def test_a_filter_that_is_too_large_gets_a_better_one() -> None:
    advice = bit_map_advice(replace(SELECTIVE, message_bytes=100), BloomFilter.create_by_fn(1, 20_000))
    assert not advice.use
    assert advice.best is not None
    assert advice.best.m < 300
    assert "with maxErrorRateOfBloomFilter=" in advice.reason
    assert "it would pay" in advice.reason


def test_the_rate_is_what_a_filter_has() -> None:
    keys = [f"group{number}#T" for number in range(2_000)]
    bits = USUAL.bit_map(keys[:8])
    passing = sum(all(bits[at // 8] >> at % 8 & 1 for at in USUAL.bit_positions(key)) for key in keys[8:])
    assert passing / len(keys[8:]) == pytest.approx(false_positive_rate(USUAL, 8), abs=0.02)
