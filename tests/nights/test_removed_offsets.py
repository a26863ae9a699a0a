"""A group whose offsets an operator removed while it was away begins as if it had never been there."""

from __future__ import annotations

import json
import shutil

import pytest

from jobs import deliver, dispatch, ingest, lag, maintain, register
from tests.nights.commands import differing, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"
AWAY = event(after(5), "unregister", "cg")


def subscribed(at: int, consume_from: str) -> str:
    return event(at, "register", "cg", type="SQL92", expression=EVERYTHING, consume_from=consume_from)


def save(broker: GrowingBroker, **offsets: int) -> None:
    """Saves the queue and the offsets as they are now."""
    broker.log.write_queues(broker.folder / "store")
    broker.commit(broker.log.time, other=0, **offsets)


def grow(broker: GrowingBroker, **offsets: int) -> None:
    broker.grow()
    save(broker, **offsets)


def removed(broker: GrowingBroker, consume_from: str = "first") -> list[str]:
    """The group consumes five messages and leaves. In the second night, its offsets are removed."""
    events = [subscribed(BEFORE, consume_from), AWAY]
    save(broker, cg=5)
    assert broker.night(events).code == 0
    grow(broker)
    assert broker.night(events).code == 0
    assert broker.received("cg") == [0, 1, 2, 3, 4]
    return events


def pending(broker: GrowingBroker) -> int:
    ended = broker.run(lag, "--warehouse", broker.folder / "w", "--group", "cg", "--json")
    (row,) = map(json.loads, ended.out.splitlines())
    assert row["committed"] is None
    return int(row["would_get"])


@pytest.mark.parametrize("consume_from", ["first", "last"])
def test_it_begins_again_at_the_first_message(broker: GrowingBroker, consume_from: str) -> None:
    events = removed(broker, consume_from)
    assert pending(broker) == 20
    assert broker.passes_audits()
    grow(broker, cg=30)
    back = [*events, subscribed(after(25), consume_from)]
    assert broker.night(back).code == 0
    assert broker.received("cg") == sorted([*range(5), *range(30)])
    assert broker.passes_audits()
    before = broker.facts()
    for since in (0, after(12), after(22)):
        assert broker.night(back, "--redo-from", since).code == 0
        assert differing(broker.facts(), before) == []
    next((broker.folder / "w" / "delivery_blocks").rglob("*.parquet")).unlink()
    assert broker.run(maintain, "--rebuild", "--warehouse", broker.folder / "w").code == 0
    assert differing(broker.facts(), before) == []


def test_it_begins_at_the_end_of_a_queue_without_its_first_message(broker: GrowingBroker) -> None:
    events = removed(broker, "last")
    broker.log.append(300)
    broker.grow()
    broker.log.write(broker.folder / "store", broker.log.segment)
    save(broker)
    broker.log.time += 1_000
    assert broker.night(events).code == 0
    assert pending(broker) == 0
    assert broker.passes_audits()
    end = len(broker.log.messages)
    broker.log.append(10)
    broker.log.write(broker.folder / "store", broker.log.segment)
    save(broker, cg=end + 10)
    back = subscribed(broker.log.messages[end + 4].stored_at - 500, "last")
    assert broker.night([*events, back]).code == 0
    assert broker.received("cg") == [*range(5), *range(end + 4, end + 10)]
    assert broker.passes_audits()


def test_the_offset_of_the_first_message_is_an_offset(broker: GrowingBroker) -> None:
    """The group never received a message. Its offset, 0, is removed, and so is the first message."""
    events = [subscribed(BEFORE - 1, "last"), event(BEFORE, "unregister", "cg")]
    save(broker, cg=0)
    assert broker.night(events).code == 0
    broker.log.append(300)
    broker.grow()
    broker.log.write(broker.folder / "store", broker.log.segment)
    save(broker)
    assert broker.night(events).code == 0
    assert pending(broker) == 0


def test_an_operator_may_set_an_offset_after_that(broker: GrowingBroker) -> None:
    events = removed(broker)
    grow(broker, cg=30)
    reset = event(after(22), "reset_offset", "cg", queue_id=0, offset=12)
    assert broker.night([*events, reset, subscribed(after(25), "first")]).code == 0
    assert broker.received("cg") == [*range(5), *range(12, 30)]
    assert broker.passes_audits()


def test_an_offset_that_the_broker_has_again_counts(broker: GrowingBroker) -> None:
    events = removed(broker)
    grow(broker, cg=8)
    assert broker.night(events).code == 0
    grow(broker, cg=40)
    assert broker.night([*events, subscribed(after(35), "first")]).code == 0
    assert broker.received("cg") == [*range(5), *range(8, 40)]


def test_a_group_that_no_event_named_yet(broker: GrowingBroker) -> None:
    save(broker, cg=7)
    broker.night([sql(BEFORE, "other", EVERYTHING)])
    grow(broker)
    broker.night([sql(BEFORE, "other", EVERYTHING)])
    rows = {row["consumer_group"]: row for row in rows_of(broker.folder / "w", "current_offsets")}
    assert (rows["cg"]["decided_to"], rows["cg"]["committed"]) == (None, -1)
    grow(broker, cg=30)
    broker.night([sql(BEFORE, "other", EVERYTHING), subscribed(after(25), "first")])
    assert broker.received("cg") == list(range(30))
    assert broker.passes_audits()


def test_a_file_of_4x_without_a_time_says_the_same(broker: GrowingBroker) -> None:
    """The newest time of the snapshot counts."""
    events = [subscribed(BEFORE, "first"), AWAY]
    for end, offsets in ((0, {"cg": 5}), (10, {}), (20, {"cg": 30})):
        if end:
            broker.grow()
        broker.log.write_queues(broker.folder / "store")
        broker.commit(other=end, **offsets)
        assert broker.night([*events, subscribed(after(25), "first")] if end == 20 else events).code == 0
    assert broker.received("cg") == sorted([*range(5), *range(30)])
    assert broker.passes_audits()


@pytest.mark.parametrize("missing", ["config", "consumequeue"])
def test_an_incomplete_copy_says_nothing(broker: GrowingBroker, missing: str) -> None:
    """Without the file, or without the queues: the offsets of a deleted topic are removed, too."""
    events = [subscribed(BEFORE, "first"), AWAY]
    save(broker, cg=5)
    broker.night(events)
    grow(broker)
    shutil.rmtree(broker.folder / "store" / missing)
    broker.night(events)
    grow(broker, cg=30)
    broker.night([*events, subscribed(after(25), "first")])
    assert broker.received("cg") == list(range(30))


def test_steps_of_a_night_leave_the_same_tables(broker: GrowingBroker) -> None:
    events = [subscribed(BEFORE, "first"), AWAY]
    given = "--broker-config", broker.folder / "broker.conf", "--warehouse", broker.folder / "steps"
    store = "--store", broker.folder / "store"
    back = [*events, subscribed(after(25), "first")]
    for number, (offsets, lines) in enumerate((({"cg": 5}, events), ({}, events), ({"cg": 30}, back))):
        if number:
            broker.grow()
        save(broker, **offsets)
        assert broker.night(lines).code == 0
        for _ in range(2):
            assert broker.run(ingest, *store, *given).code == 0
        assert broker.run(register, "--subscriptions", broker.folder / "events.jsonl", *given).code == 0
        for step in (dispatch, deliver):
            assert broker.run(step, *given).code == 0
        assert differing(broker.facts("steps"), broker.facts()) == []
    assert broker.received("cg", "steps") == sorted([*range(5), *range(30)])


def test_on_a_broker_of_4_x_which_saves_no_time(broker: GrowingBroker) -> None:
    events = [subscribed(BEFORE, "first"), AWAY]
    for night, offsets in enumerate(({"cg": 5}, {})):
        if night:
            broker.grow()
        broker.log.write_queues(broker.folder / "store")
        broker.commit(None, other=0, **offsets)
        assert broker.night(events).code == 0
    assert broker.received("cg") == [0, 1, 2, 3, 4]
    assert pending(broker) == 20
