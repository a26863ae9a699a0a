"""A copy of a living broker's store has an older log than offsets and events: the log is copied first."""

from __future__ import annotations

import pytest

from tests.broker_log import BrokerLog
from tests.nights.commands import without_runs
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, after, event, sql

COPIED = 6
"""The number of messages in the copy of the log in the first night. Ten are stored when the offsets are copied."""
EVENTS = {
    "changes": [sql(BEFORE, "cg", LOW), sql(after(8), "cg", HIGH)],
    "leaves": [sql(BEFORE, "cg", HIGH), event(after(8), "unregister", "cg")],
    "comes": [sql(after(8), "cg", HIGH)],
    "returns": [sql(BEFORE, "cg", HIGH), event(after(7), "unregister", "cg"), sql(after(9), "cg", HIGH)],
    "reset": [sql(BEFORE, "cg", HIGH), event(after(8), "reset_offset", "cg", queue_id=0, offset=5)],
}


def night(broker: GrowingBroker, warehouse: str, events: list[str], messages: int) -> None:
    """A night on a copy whose log has only the first messages. The offsets were copied after all of them."""
    broker.commit(broker.log.time)
    BrokerLog().append(messages).write(broker.folder / "store")
    assert broker.night(events, warehouse=warehouse).code == 0


@pytest.mark.parametrize("kind", EVENTS)
def test_messages_stored_while_a_store_was_copied_are_filtered_as_of_their_time(
    broker: GrowingBroker, kind: str
) -> None:
    events = list(EVENTS[kind])
    for last in (10, 20, 30):
        if last == 30 and kind == "leaves":
            events.append(sql(after(25), "cg", LOW + " OR n = '25'"))
        night(broker, "w", events, COPIED if last == 10 else last)
        night(broker, "whole", events, last)
        broker.grow()
    deliveries, expected = (without_runs(broker.folder / name)["deliveries"] for name in ("w", "whole"))
    assert deliveries == expected
    assert broker.passes_audits()
