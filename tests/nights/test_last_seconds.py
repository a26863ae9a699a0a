"""Groups that leave in the last seconds before a snapshot: its file may have their offsets of before.

The clients of a real broker committed when they left, and the broker saved its offsets up to five seconds later.
"""

from __future__ import annotations

import json

import pytest

from answers.facts import open_brokers
from filtering.delivery.pull_window import Reason
from jobs import explain
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, after, event, sql
from tests.nights.missed_rows import assert_said_alike, missed_rows

EVERYTHING = "n IS NOT NULL"


@pytest.mark.parametrize(
    ("left_after", "saved_at", "received"),
    [(8, BEFORE, [*range(8)]), (5, BEFORE, [*range(5)]), (4, BEFORE, [0, 1]), (8, after(8), [0, 1])],
)
def test_an_offset_that_may_be_older_does_not_count(
    broker: GrowingBroker, left_after: int, saved_at: int, received: list[int]
) -> None:
    """The last of ten messages, one a second, was stored when the snapshot was taken."""
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(left_after), "unregister", "cg")]
    broker.commit(saved_at=saved_at, cg=2)
    broker.night(events)
    assert broker.received("cg") == received
    broker.grow()
    broker.night([*events, sql(after(15), "cg", EVERYTHING)])
    assert broker.received("cg") == [*range(20)]
    assert broker.passes_audits()


@pytest.mark.parametrize(("committed", "again"), [(6, [6, 7]), (8, [])])
def test_the_next_snapshot_says_where_the_group_stands(broker: GrowingBroker, committed: int, again: list[int]) -> None:
    """Its held pull had come to message 6, of those that were not for it."""
    events = [sql(BEFORE, "cg", "n IN ('0','1','2','3','4','5')"), event(after(8), "unregister", "cg")]
    broker.commit(saved_at=BEFORE, cg=2)
    broker.night(events)
    assert broker.received("cg") == [*range(6)]
    broker.grow()
    broker.commit(saved_at=BEFORE, cg=committed)
    broker.night(events)
    assert broker.received("cg") == [*range(6)]
    broker.grow()
    broker.night([*events, sql(after(25), "cg", HIGH)])
    assert broker.received("cg") == [*range(6), *again, 8, 9, 15]
    assert broker.passes_audits()


@pytest.mark.parametrize("older", [None, 2], ids=["no offset", "an older one"])
def test_what_a_held_pull_had_not_passed_when_the_group_left_may_come_in_a_later_night(
    broker: GrowingBroker, older: int | None
) -> None:
    """No snapshot says whether its pull had come past 6 and 7, which only its next subscription matches."""
    events = [sql(BEFORE, "cg", "n IN ('0','1','2','3','4','5')"), event(after(8), "unregister", "cg")]
    if older is not None:
        broker.commit(saved_at=BEFORE, cg=older)
    broker.night(events)
    broker.grow()
    broker.night([*events, sql(after(15), "cg", "n IN ('7','8','9','15')")])
    assert broker.received("cg") == [*range(6), 8, 9, 15]
    assert explained(broker)[Reason.LEFT_PULL] == [7]
    assert broker.passes_audits()


def uncertain(broker: GrowingBroker) -> int:
    return sum(row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats"))


def explained(broker: GrowingBroker) -> dict[str, list[int]]:
    """What explain says is not certain, with the queue offsets of messages."""
    place = "--warehouse", broker.folder / "w", "--topic", "T", "--queue", 0, "--group", "cg", "--json", "--offset"
    reasons: dict[str, list[int]] = {}
    for offset in range(10):
        if why := json.loads(broker.run(explain, *place, offset).out)["uncertain"]:
            reasons.setdefault(why, []).append(offset)
    return reasons


@pytest.mark.parametrize(("committed", "in_flight"), [(6, {Reason.IN_FLIGHT: [6, 7]}), (8, {})])
def test_what_a_group_had_not_committed_when_it_left_may_have_been_received(
    broker: GrowingBroker, committed: int, in_flight: dict[str, list[int]]
) -> None:
    """A real client received a message of nights_dev twice: it left while its listener ran."""
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(8), "unregister", "cg")]
    broker.commit(saved_at=after(9), cg=committed)
    broker.night(events)
    assert broker.received("cg") == [*range(committed)]
    assert uncertain(broker) == 8 - committed
    broker.grow()
    broker.night([*events, sql(after(15), "cg", EVERYTHING)])
    assert broker.received("cg") == [*range(20)]
    assert uncertain(broker) == 8 - committed
    assert explained(broker) == in_flight
    assert broker.passes_audits()


def test_each_leave_of_a_group_counts(broker: GrowingBroker) -> None:
    """Message 2 may have been received before the first leave; the subscription of the second one does not match it."""
    events = [sql(BEFORE, "cg", LOW), event(after(3), "unregister", "cg"), sql(after(3) + 1, "cg", HIGH)]
    broker.night([*events, event(after(4), "unregister", "cg"), sql(after(4) + 1, "cg", LOW)])
    assert 2 in explained(broker)[Reason.IN_FLIGHT]


def test_where_a_group_stood_that_left_and_came_back_between_two_snapshots_is_uncertain(broker: GrowingBroker) -> None:
    """It may get again what it had just received, and its new filter may meet what a held pull had not passed."""
    broker.night([sql(BEFORE, "cg", HIGH), event(after(7), "unregister", "cg"), sql(after(8), "cg", LOW)])
    assert broker.received("cg") == [5, 6]
    assert uncertain(broker) == 7
    assert explained(broker) == {Reason.LEFT_PULL: [0, 1, 2, 3, 4], Reason.IN_FLIGHT: [5, 6]}
    assert broker.passes_audits()


def test_what_groups_missed_is_uncertain_only_where_the_other_filter_would_have_delivered_it(
    broker: GrowingBroker,
) -> None:
    """Messages 6 to 8 match neither filter: to the first one, they are like messages 0 to 4."""
    broker.night([sql(BEFORE, "cg", "n IN ('5')"), event(after(9), "unregister", "cg"), sql(after(9) + 1, "cg", LOW)])
    (facts,) = open_brokers(Warehouse.at(str(broker.folder / "w")))
    missed = missed_rows(facts, "cg")
    assert {row["queue_offset"] for row in missed if row["uncertain"] == Reason.LEFT_PULL} == {0, 1, 2, 3, 4}
    assert_said_alike(facts, "cg", missed)
