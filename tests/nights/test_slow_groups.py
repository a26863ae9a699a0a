"""Groups that do not keep up: their committed offset decides, whatever else happens in the night."""

from __future__ import annotations

import pytest

from tests.broker_log import EVERY, BrokerLog
from tests.nights.growing_broker import BEFORE, MINUTE, GrowingBroker, after, event, night_of_a_slow_group, sql

EVERYTHING, ODD = "n IS NOT NULL", "n IN ('13','15','17','19','21','23')"


def test_a_slow_group_that_restarts_has_not_pulled_what_lies_beyond_its_offset(broker: GrowingBroker) -> None:
    """It is at message 5 when the second night begins, and at 12 when it ends: the restart changes nothing of that."""
    night_of_a_slow_group(broker, [sql(BEFORE, "cg", EVERYTHING)], committed=5)
    assert broker.received("cg") == list(range(5))
    broker.grow()
    restarted = [event(after(MINUTE + 15), "unregister", "cg"), sql(after(MINUTE + 16), "cg", ODD)]
    night_of_a_slow_group(broker, [sql(BEFORE, "cg", EVERYTHING), *restarted], committed=12)
    assert broker.received("cg") == list(range(12))
    broker.grow()
    night_of_a_slow_group(broker, [sql(BEFORE, "cg", EVERYTHING), *restarted], committed=30)
    assert broker.received("cg") == [*range(12), 13, 15, 17, 19, 21, 23]
    assert broker.passes_audits()


def test_a_slow_group_that_restarts_and_leaves(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(4), "unregister", "cg"), sql(after(5), "cg", EVERYTHING)]
    events.append(event(after(8), "unregister", "cg"))
    night_of_a_slow_group(broker, events, committed=2)
    assert broker.received("cg") == [0, 1]
    broker.grow()
    night_of_a_slow_group(broker, [*events, sql(after(MINUTE + 15), "cg", EVERYTHING)], committed=20)
    assert broker.received("cg") == list(range(20))
    assert broker.passes_audits()


def test_a_slow_group_that_restarts_just_before_the_snapshot(broker: GrowingBroker) -> None:
    """Nobody knows how far it came since then. It goes on at its offset, under its new subscription."""
    night_of_a_slow_group(broker, [sql(BEFORE, "cg", EVERYTHING)], committed=5)
    broker.grow()
    end = broker.log.time + MINUTE * EVERY
    restarted = [event(end - 2 * EVERY, "unregister", "cg"), sql(end - EVERY, "cg", ODD)]
    night_of_a_slow_group(broker, [sql(BEFORE, "cg", EVERYTHING), *restarted], committed=12)
    assert broker.received("cg") == [*range(12), 13, 15, 17, 19]
    assert broker.passes_audits()


@pytest.mark.parametrize("is_away", [True, False])
def test_what_came_before_a_reset_stays(broker: GrowingBroker, is_away: bool) -> None:
    """The committed offset says nothing of what the group had pulled before an operator moved it back."""
    broker.log.append(50).write(broker.folder / "store")
    away = [event(after(50), "unregister", "cg"), sql(after(52), "cg", EVERYTHING)] if is_away else []
    events = [sql(BEFORE, "cg", EVERYTHING), *away, event(after(51), "reset_offset", "cg", queue_id=0, offset=1)]
    night_of_a_slow_group(broker, events, committed=3)
    assert broker.received("cg") == sorted([*range(50 if is_away else 51), 1, 2])
    assert broker.passes_audits()


def test_what_a_returning_group_lost_stays_lost(broker: GrowingBroker) -> None:
    """It returns after the broker deleted what waited for it, and has committed nothing since."""
    broker.log = BrokerLog(segment=1 << 10).append(20)
    broker.log.write(broker.folder / "store")
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(2), "unregister", "cg")]
    night_of_a_slow_group(broker, events, committed=2)
    assert broker.received("cg") == [0, 1]
    broker.log.append(20).write(broker.folder / "store", start=1 << 10)
    events.append(sql(after(MINUTE + 21), "cg", EVERYTHING))
    night_of_a_slow_group(broker, events, committed=2)
    broker.log.append(1).write(broker.folder / "store", start=1 << 10)
    night_of_a_slow_group(broker, events, committed=41)
    first = broker.log.min_offsets(1 << 10)["T", 0]
    assert 2 < first < 20
    assert broker.received("cg") == [0, 1, *range(first, 41)]
    assert broker.passes_audits()
