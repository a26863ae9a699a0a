"""Groups that leave in the last seconds before a snapshot: its file may have their offsets of before.

The clients of a real broker committed when they left, and the broker saved its offsets up to five seconds later.
"""

from __future__ import annotations

import pytest

from tests.nights.growing_broker import BEFORE, HIGH, GrowingBroker, after, event, sql

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
