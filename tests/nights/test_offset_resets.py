"""Offset resets: a group pulls messages again, at once or when it returns."""

from __future__ import annotations

import json

import pytest

from jobs import explain, maintain
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"


def register(at: int, expression: str = EVERYTHING) -> str:
    return sql(at, "cg", expression)


def leave(at: int) -> str:
    return event(at, "unregister", "cg")


def reset(at: int, offset: int) -> str:
    return event(at, "reset_offset", "cg", queue_id=0, offset=offset)


def told_to(broker: GrowingBroker) -> int | None:
    return next(rows_of(broker.folder / "w", "current_offsets"))["told_to"]


def test_a_group_that_consumes_pulls_again_at_once(broker: GrowingBroker) -> None:
    broker.night([register(BEFORE), reset(after(6), 2)])
    assert broker.received("cg") == sorted([*range(10), *range(2, 6)])
    assert broker.passes_audits()


@pytest.mark.parametrize("first", [2, 4])
def test_of_resets_in_one_millisecond_the_last_counts(broker: GrowingBroker, first: int) -> None:
    broker.night([register(BEFORE), reset(after(6), first), reset(after(6), 2)])
    assert broker.received("cg") == sorted([*range(10), *range(2, 6)])
    assert broker.passes_audits()


def test_stop_reset_and_start_in_one_night(broker: GrowingBroker) -> None:
    broker.night([register(BEFORE), leave(after(6)), reset(after(7), 2), register(after(8) + 1)])
    assert broker.received("cg") == sorted([*range(6), *range(2, 10)])
    assert broker.passes_audits()
    broker.grow()
    broker.night([register(BEFORE), leave(after(6)), reset(after(7), 2), register(after(8) + 1)])
    assert broker.received("cg") == sorted([*range(6), *range(2, 20)])


def test_without_a_reset_a_group_that_left_goes_on_where_it_stopped(broker: GrowingBroker) -> None:
    events = [register(BEFORE), leave(after(6))]
    broker.night(events)
    assert (broker.received("cg"), told_to(broker)) == (list(range(6)), 6)
    broker.grow()
    broker.night([*events, register(after(15))])
    assert broker.received("cg") == list(range(20))
    assert broker.passes_audits()


def test_away_reset_and_return_in_the_next_night(broker: GrowingBroker) -> None:
    events = [register(BEFORE), leave(after(6))]
    broker.night(events)
    broker.grow()
    broker.night([*events, reset(after(12), 9), reset(after(13), 2), register(after(15))])
    assert broker.received("cg") == sorted([*range(6), *range(2, 20)])
    assert broker.passes_audits()


def test_a_reset_of_a_group_that_returns_nights_later(broker: GrowingBroker) -> None:
    events = [register(BEFORE), leave(after(6)), reset(after(7), 2)]
    broker.night(events)
    assert (broker.received("cg"), told_to(broker)) == (list(range(6)), 2)
    broker.grow()
    broker.night(events)
    assert (broker.received("cg"), told_to(broker)) == (list(range(6)), 2)
    broker.grow()
    broker.night([*events, register(after(25))])
    assert broker.received("cg") == sorted([*range(6), *range(2, 30)])
    assert broker.passes_audits()


def test_a_reset_that_skips_messages_of_a_group_that_is_away(broker: GrowingBroker) -> None:
    broker.night([register(BEFORE), leave(after(2)), reset(after(7), 6), register(after(8))])
    assert broker.received("cg") == [0, 1, *range(6, 10)]
    assert broker.passes_audits()


def test_explain_shows_the_subscription_of_the_second_pull(broker: GrowingBroker) -> None:
    """The second subscription filtered message 3, too."""
    other = "n = '7'"
    broker.night([register(BEFORE, "n = '5'"), leave(after(6)), reset(after(7), 2), register(after(8), other)])
    code, out, _ = broker.run(
        explain, "--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset", "3"
    )
    assert (code, other in out) == (0, True)


def test_the_last_of_several_deliveries_is_explained_after_maintenance(broker: GrowingBroker) -> None:
    """Maintenance writes a checkpoint, which lists the files of the nights in any order."""
    events = [register(BEFORE)]
    broker.night(events)
    for night in range(1, 6):
        broker.grow()
        events += [reset(after(10 * night + 4), 2), register(after(10 * night + 6), f"n <> '-{night}'")]
        broker.night(events)
    warehouse = ("--warehouse", broker.folder / "w")
    place = ("--group", "cg", "--topic", "T", "--queue", "0", "--offset", "3", "--json")
    before = broker.run(explain, *warehouse, *place).out
    assert json.loads(before)["subscription"]["expression"] == "n <> '-4'"
    assert broker.run(maintain, *warehouse).code == 0
    assert broker.run(explain, *warehouse, *place).out == before
