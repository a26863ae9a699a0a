"""Queues in which a group has committed nothing, although it has in others of the topic: it begins there."""

from __future__ import annotations

import json

import pytest

from tests.broker_log import EVERY
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, event, sql

EVERYTHING, NEVER = "n IS NOT NULL", "k = 'y'"
MINUTE = 60
"""Messages in a minute."""


def night(broker: GrowingBroker, events: list[str], has_time: bool = True, **committed: int) -> None:
    """A night whose snapshot is of a minute after its last message, with offsets of ``q0``, ``q1``, …

    ``has_time``: whether the broker saves the time with them, as from 5.0 on.
    """
    broker.log.write(broker.folder / "store")
    broker.log.write_queues(broker.folder / "store")
    broker.log.time += MINUTE * EVERY
    queues = {name.removeprefix("q"): offset for name, offset in committed.items()}
    document: dict[str, object] = {"offsetTable": {"T@cg": queues}}
    if has_time:
        document["dataVersion"] = {"timestamp": broker.log.time - 1}
    (broker.folder / "store" / "config").mkdir(exist_ok=True)
    (broker.folder / "store" / "config" / "consumerOffset.json").write_text(json.dumps(document))
    assert broker.night(events).code == 0


def received(broker: GrowingBroker) -> list[tuple[int, int]]:
    rows = rows_of(broker.folder / "w", "deliveries", "queue_id", "queue_offset")
    return sorted((row["queue_id"], row["queue_offset"]) for row in rows)


@pytest.mark.parametrize("has_time", [True, False])
def test_a_group_that_returns_begins_where_it_had_committed_nothing(broker: GrowingBroker, has_time: bool) -> None:
    """It left before its held pull of queue 0 ended, in which nothing was for it: it has no offset there.

    A broker of 4.x saves no time with the offsets; a later message shows that they are newer than the end of the group.
    """
    broker.log.append(3, queue_id=1, k="y")
    events = [sql(BEFORE, "cg", NEVER), event(broker.log.time, "unregister", "cg")]
    broker.log.time += MINUTE * EVERY
    broker.log.append(1, topic="U")
    night(broker, events, has_time, q1=3)
    assert received(broker) == [(1, 0), (1, 1), (1, 2)]
    events.append(sql(broker.log.time, "cg", EVERYTHING))
    broker.log.time += EVERY
    broker.log.append(1, queue_id=1)
    night(broker, events, has_time, q0=10, q1=4)
    assert received(broker) == [*((0, offset) for offset in range(10)), *((1, offset) for offset in range(4))]
    assert broker.passes_audits()


def test_a_group_does_not_pull_a_queue_that_was_taken_away(broker: GrowingBroker) -> None:
    """It has no offset in queue 0 a minute after its messages: readQueueNums is 0, or its clients do not assign it."""
    broker.log.append(3, queue_id=1)
    events = [sql(BEFORE, "cg", EVERYTHING)]
    night(broker, events, q1=3)
    assert received(broker) == [(1, 0), (1, 1), (1, 2)]
    broker.grow()
    night(broker, events, q1=3)
    assert received(broker) == [(1, 0), (1, 1), (1, 2)]
    night(broker, events, q0=20, q1=3)
    assert received(broker) == [*((0, offset) for offset in range(20)), (1, 0), (1, 1), (1, 2)]
    assert broker.passes_audits()
