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
    offset: int | None = next(rows_of(broker.folder / "w", "current_offsets"))["told_to"]
    return offset


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


def told(broker: GrowingBroker, offset: int) -> str:
    """The first lines of the explanation of a message: the outcome and the reason."""
    place = ("--group", "cg", "--topic", "T", "--queue", "0", "--offset", offset)
    lines = broker.run(explain, "--warehouse", broker.folder / "w", *place).out.splitlines()
    return f"{lines[0].partition(': ')[2]}, {lines[1].strip()}"


MOVED = "never asked for, because     the group's offset was moved past it while the group was away"
NO_MATCH = "not delivered, stopped at  stage 2, expression: the expression is FALSE"


def test_explain_says_which_messages_a_reset_jumped_over(broker: GrowingBroker) -> None:
    """Whether the filter would have matched them or not."""
    events = [register(BEFORE), leave(after(2)), reset(after(7), 6)]
    broker.night([*events, register(after(8), "n IN ('0','1','4','6')")])
    assert [told(broker, offset) for offset in range(2, 6)] == [MOVED] * 4
    assert told(broker, 7) == NO_MATCH


def test_a_first_night_with_a_reset_forwards_has_no_later_beginning(broker: GrowingBroker) -> None:
    """The group came late, and pulled from the first message on."""
    other = "n = '99'"
    broker.night([register(after(3), other), leave(after(4)), reset(after(7), 8), register(after(9), other)])
    assert [told(broker, offset) for offset in (0, 2)] == [NO_MATCH] * 2
    assert [told(broker, offset) for offset in (4, 7)] == [MOVED] * 2


def test_a_group_that_was_reset_before_it_first_came_began_there(broker: GrowingBroker) -> None:
    other = "n = '99'"
    events = [reset(BEFORE, 2), register(after(3), other), leave(after(4)), reset(after(7), 8)]
    broker.night([*events, register(after(9), other)])
    assert told(broker, 1) == "never asked for, because     the group first came later, and began at a later message"
    assert (told(broker, 2), told(broker, 5)) == (NO_MATCH, MOVED)


def test_what_was_jumped_over_is_pulled_after_a_reset_backwards(broker: GrowingBroker) -> None:
    events = [register(BEFORE), leave(after(2)), reset(after(5), 6), register(after(6), "n = '3'"), reset(after(8), 1)]
    broker.night(events)
    assert [told(broker, offset).split(",")[0] for offset in (2, 3)] == ["not delivered", "delivered"]


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
