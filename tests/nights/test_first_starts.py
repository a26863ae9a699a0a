"""Where a group begins that mqsieve has not seen before: at an offset that the broker already has, if there is one."""

from __future__ import annotations

import json

import pytest

from jobs import explain, maintain, what_if
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"


def check(broker: GrowingBroker, expected: list[int]) -> None:
    assert broker.received("cg") == expected
    assert broker.passes_audits()


@pytest.mark.parametrize("consume_from", ["first", "last"])
def test_a_group_that_was_away_in_the_first_night(broker: GrowingBroker, consume_from: str) -> None:
    """No event of the first night names it, but the broker has its committed offset."""
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=7, cg_other=10)
    broker.night([other])
    broker.grow()
    broker.commit(cg=20, cg_other=20)
    start = event(after(15), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from=consume_from)
    broker.night([other, start])
    check(broker, list(range(7, 20)))
    for again in (("--redo-from", 0), ("--redo-from", after(12))):
        assert broker.night([other, start], *again).code == 0
        check(broker, list(range(7, 20)))
    next((broker.folder / "w" / "delivery_blocks").rglob("*.parquet")).unlink()
    assert broker.run(maintain, "--rebuild", "--warehouse", broker.folder / "w").code == 0
    check(broker, list(range(7, 20)))


def test_its_committed_offset_alone_is_no_subscription(broker: GrowingBroker) -> None:
    broker.commit(cg=7)
    broker.night([sql(BEFORE, "cg_other", EVERYTHING)])
    rows = {row["consumer_group"]: row for row in rows_of(broker.folder / "w", "current_offsets")}
    assert (rows["cg"]["told_to"], rows["cg"]["committed"]) == (None, 7)
    assert {row["consumer_group"] for row in rows_of(broker.folder / "w", "delivery_stats")} == {"cg_other"}


def test_the_messages_before_its_offset_are_explained(broker: GrowingBroker) -> None:
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=7)
    broker.night([other])
    broker.grow()
    broker.night([other, sql(after(15), "cg", EVERYTHING)])
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0")
    assert "began at a later message" in broker.run(explain, *given, "--offset", "6").out
    assert "DELIVERED" in broker.run(explain, *given, "--offset", "7", "--json").out


def damage(broker: GrowingBroker, *numbers: int) -> None:
    """Damages some messages in the store."""
    for number in numbers:
        broker.log.damage(number)
    broker.log.write(broker.folder / "store")


def gained_and_kept(broker: GrowingBroker) -> tuple[int, int]:
    """What the group gains and keeps if it takes everything."""
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--sql", EVERYTHING, "--json")
    (change,) = json.loads(broker.run(what_if, *given).out)["changes"]
    return change["gained"], change["kept"]


@pytest.mark.parametrize("damaged", [(4, 8), (4, 10)])
def test_the_messages_before_its_offset_among_damaged_ones(broker: GrowingBroker, damaged: tuple[int, ...]) -> None:
    """Two offsets have no entry; 10 is between those of two nights. The group never pulled 6, and has pulled 7."""
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=7)
    damage(broker, *(number for number in damaged if number < 10))
    broker.night([other])
    broker.grow()
    damage(broker, *(number for number in damaged if number >= 10))
    broker.night([other, sql(after(15), "cg", "n IN ('6', '12')")])
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset")
    assert "began at a later message" in broker.run(explain, *place, "6").out
    assert "STOPPED_BY_EXPRESSION" in broker.run(explain, *place, "7", "--json").out
    assert gained_and_kept(broker) == (11, 1)


def test_a_group_that_began_at_the_end_gains_nothing(broker: GrowingBroker) -> None:
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=10)
    damage(broker, 4)
    broker.night([other])
    broker.log.append(topic="U").write(broker.folder / "store")
    broker.night([other, sql(after(10), "cg", EVERYTHING)])
    assert gained_and_kept(broker) == (0, 0)


def test_a_group_that_never_pulled_gains_nothing(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", "n >")])
    assert gained_and_kept(broker) == (0, 0)


@pytest.mark.parametrize(("offset", "first"), [(12, 7), (5, 5)])
def test_a_reset_in_a_later_night_does_not_move_its_start(broker: GrowingBroker, offset: int, first: int) -> None:
    events = [sql(BEFORE, "cg_other", EVERYTHING)]
    broker.commit(cg=7)
    broker.night(events)
    broker.grow()
    events.append(sql(after(15), "cg", "n = '12'"))
    broker.night(events)
    broker.grow()
    broker.night([*events, event(after(25), "reset_offset", "cg", queue_id=0, offset=offset)])
    assert gained_and_kept(broker) == (29 - first, 1)


@pytest.mark.parametrize("nights", [1, 2])
def test_an_operator_set_the_offset_before_the_group_first_came(broker: GrowingBroker, nights: int) -> None:
    events = [event(after(3), "reset_offset", "cg", queue_id=0, offset=6), sql(after(8), "cg", EVERYTHING)]
    if nights == 2:
        broker.night([events[0], sql(BEFORE, "cg_other", EVERYTHING)])
        broker.grow()
        events = [events[0], sql(BEFORE, "cg_other", EVERYTHING), sql(after(18), "cg", EVERYTHING)]
    broker.night(events)
    check(broker, list(range(6, 10 * nights)))
