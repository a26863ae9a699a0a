"""After a night is killed at any step, the same command gives the tables of an undisturbed night."""

from __future__ import annotations

import pytest

from jobs import nightly
from tests.faults.kill import Nights, Order
from tests.faults.stores import NIGHTS, FaultyBroker
from tests.nights.commands import Run, without_runs


@pytest.mark.parametrize("number", NIGHTS)
def test_killed_after_every_step(
    nights: Nights, run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, number: int
) -> None:
    expected = without_runs(undisturbed.kept(number))
    broker.start_from(undisturbed, number - 1)
    steps = nights.run(Order(broker.arguments(number))).steps
    assert steps > 20
    for step in range(number, steps + 1, 2):  # the others: tests/faults/kill_nights.py
        broker.start_from(undisturbed, number - 1)
        assert nights.run(Order(broker.arguments(number), after_steps=step)).killed
        ended = run(nightly, *broker.arguments(number))
        assert ended.code == 0, (step, ended.error)
        broker.assert_same(expected, step)


def test_killed_again_while_it_takes_back(
    nights: Nights, run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    """Each run is killed one step later than the one before, mostly while it undoes the commits of that one."""
    broker.start_from(undisturbed, 1)
    step = 1
    while nights.run(Order(broker.arguments(2), after_steps=step)).killed:
        step += 2
    assert step > 20
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out
    broker.assert_same(without_runs(undisturbed.kept(2)))
