"""Where a group began, by the number of entries that it pulled, against a simulation entry by entry."""

from __future__ import annotations

import random

import numpy as np
import pytest

from filtering.delivery.pull_window import FOREVER
from filtering.explanation.first_pulled import Span, first_pulled
from tests.depth import examples

END = 112
"""ms: nothing happens later."""


def simulated(begin: int, times: list[int], spans: list[Span], resets: list[tuple[int, int]]) -> tuple[int, int]:
    """The number of entries that a group pulls which begins at ``begin``, and the offset at which it then is."""
    at, pulled = begin, 0
    moves = dict(resets)
    for now in range(END):
        at = moves.get(now, at)
        stored = sum(time <= now for time in times)
        if any(start <= now < stop for start, stop in spans) and at < stored:
            pulled += stored - at
            at = stored
    return pulled, at


@pytest.mark.parametrize("seed", range(examples(200, 2_000)))
def test_the_first_entry_is_where_the_group_began(seed: int) -> None:
    chosen = random.Random(seed)
    times = sorted(chosen.sample(range(0, 100, 2), 20))
    limits = sorted(chosen.sample(range(1, 100, 2), 2 * chosen.randint(1, 3)))
    if chosen.random() < 0.5:
        limits[-1] = FOREVER
    spans = list(zip(limits[::2], limits[1::2], strict=True))
    stored_at_start = sum(time < spans[0][0] for time in times)
    begin = chosen.randint(0, stored_at_start)
    resets = []
    for at in sorted(chosen.sample(range(spans[0][0] + 2, END - 2, 2), chosen.randint(0, 3))):
        resets.append((at + 1, chosen.randint(0, sum(time < at for time in times))))
    resets = [(at, offset) for at, offset in resets if at not in limits]
    pulled, told_to = simulated(begin, times, spans, resets)
    if not pulled:
        return
    if spans[-1][1] < FOREVER and chosen.random() < 0.3:
        told_to = 20  # its offset was moved forward, and no event says so
    found = first_pulled(np.arange(20), np.array(times), spans, resets, told_to, pulled)
    has_pulled_first = sum(time < (resets[0][0] if resets else spans[0][1]) for time in times) > begin
    if has_pulled_first:
        assert found == begin
