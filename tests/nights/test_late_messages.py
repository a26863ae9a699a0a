"""Messages that a later night reads, since they were damaged before: every group gets them, once."""

from __future__ import annotations

import pytest

from jobs import deliver, dispatch, ingest, register
from tests.broker_log import EVERY, BrokerLog
from tests.nights.commands import Run, rows_of
from tests.nights.growing_broker import (
    BEFORE,
    DAMAGED,
    HIGH,
    LOW,
    GrowingBroker,
    after,
    damage,
    damage_magic,
    event,
    night_of_a_slow_group,
    sql,
    write_damaged,
)

EVERYTHING = "n IS NOT NULL"


def damage_body(broker: GrowingBroker) -> None:
    size = len(broker.log.data) // 10
    damage(broker, broker.log.data[:size].index(b"body"), b"x")


def check(broker: GrowingBroker, messages: int) -> None:
    """Each message has one entry, and the group received it once; the audits pass."""
    warehouse = broker.folder / "w"
    entries = rows_of(warehouse, "consumequeue", "queue_offset")
    assert sorted(row["queue_offset"] for row in entries) == list(range(messages))
    assert broker.received("cg") == list(range(messages))
    assert broker.passes_audits()


def test_a_recovered_message_reaches_a_group_that_returns_in_the_same_night(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(2), "unregister", "cg")]
    damage_body(broker)
    broker.night(events)
    broker.grow()
    broker.night([*events, sql(after(12), "cg", EVERYTHING)])
    check(broker, 20)


def test_a_recovered_message_reaches_a_group_that_was_away(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(2), "unregister", "cg"), sql(after(12), "cg", EVERYTHING)]
    damage_magic(broker)
    for _ in range(2):
        broker.night(events)
        broker.grow()
    broker.night(events)
    check(broker, 30)


def test_a_recovered_message_as_old_as_the_last_one_of_its_night(broker: GrowingBroker) -> None:
    """The first night ends at its time, and the second one begins after it."""
    broker.log = BrokerLog()
    for _ in range(10):
        broker.log.append()
        broker.log.time -= EVERY
    broker.log.time += EVERY
    events = [sql(BEFORE, "cg", EVERYTHING)]
    damage_magic(broker)
    broker.night(events)
    broker.grow()
    broker.night(events)
    check(broker, 20)


def test_a_recovered_message_that_ingest_has_read(broker: GrowingBroker, run: Run) -> None:
    damage_magic(broker)
    broker.night([sql(BEFORE, "cg", EVERYTHING)])
    broker.grow()
    given = ("--warehouse", broker.folder / "w", "--broker-config", broker.folder / "broker.conf")
    assert run(ingest, *given, "--store", broker.folder / "store").code == 0
    assert run(register, *given, "--subscriptions", broker.folder / "events.jsonl").code == 0
    assert run(dispatch, *given).code == 0
    assert run(deliver, *given).code == 0
    check(broker, 20)


@pytest.mark.parametrize("more", [(), ("--redo-from", after(15))])
def test_a_recovered_message_stays_when_the_night_that_read_it_is_repeated(
    broker: GrowingBroker, more: tuple[object, ...]
) -> None:
    """Without --redo-from, the log was cut."""
    events = [sql(BEFORE, "cg", EVERYTHING)]
    damage_magic(broker)
    broker.night(events)
    broker.grow()
    broker.night(events)
    if not more:
        broker.log.data = broker.log.data[: len(broker.log.data) * 3 // 4]
        broker.log.time -= 5000
        broker.log.append(5, queue_id=1)
        broker.log.write(broker.folder / "store")
    assert broker.night(events, *more).code == 0
    warehouse = broker.folder / "w"
    entries = [row["queue_offset"] for row in rows_of(warehouse, "consumequeue") if row["queue_id"] == 0]
    assert sorted(entries) == list(range(15 if not more else 20))
    assert len(broker.received("cg")) == 20
    assert broker.passes_audits()


def test_a_repair_leaves_the_bad_lines_of_subscription_files(broker: GrowingBroker) -> None:
    """A line's number may be the physical offset of a damaged byte."""
    write_damaged(broker, 4)
    broker.night([sql(BEFORE, "cg", EVERYTHING), "no event"])
    quarantined = rows_of(broker.folder / "w", "quarantine")
    assert sorted((row["source_file"], row["offset"]) for row in quarantined) == [(f"{0:020d}", 0), ("events.jsonl", 2)]
    write_damaged(broker)
    assert "repaired" in broker.night([sql(BEFORE, "cg", EVERYTHING)], name="others.jsonl").out
    assert [row["source_file"] for row in rows_of(broker.folder / "w", "quarantine")] == ["events.jsonl"]
    check(broker, 10)


@pytest.mark.parametrize("changed", [after(3), after(7)])
@pytest.mark.parametrize("expressions", [(EVERYTHING, HIGH), (HIGH, EVERYTHING), (HIGH, LOW), (LOW, HIGH)])
def test_a_recovered_message_is_filtered_with_the_subscription_of_its_time(
    broker: GrowingBroker, expressions: tuple[str, str], changed: int
) -> None:
    """The subscription changes before or after the damaged message 5, in the same night."""
    first, then = expressions
    events = [sql(BEFORE, "cg", first), sql(changed, "cg", then)]
    broker.night(events, warehouse="undamaged")
    damage_magic(broker)
    broker.night(events)
    broker.grow()
    assert "repaired" in broker.night(events).out
    broker.night(events, warehouse="undamaged")
    assert broker.received("cg") == broker.received("cg", "undamaged")
    assert broker.passes_audits()


def test_recovered_messages_of_two_nights_are_each_received_once(broker: GrowingBroker) -> None:
    """The second one is in a queue that the first night did not know."""
    events = [sql(BEFORE, "cg", EVERYTHING)]
    damage_magic(broker)
    broker.night(events)
    damaged, new = DAMAGED * (len(broker.log.data) // 10), len(broker.log.data)
    broker.log.append(3, queue_id=1)
    write_damaged(broker, damaged + 4, new + 4)
    broker.night(events)
    write_damaged(broker)
    assert "2 damaged places of the log were repaired" in broker.night(events).out
    assert broker.received("cg") == sorted([*range(10), *range(3)])
    assert broker.passes_audits()


def test_a_recovered_message_that_its_night_left_pending_is_received_once(broker: GrowingBroker) -> None:
    """The group was behind in the first night, by its committed offset, and caught up in the second one."""
    events = [sql(BEFORE, "cg", EVERYTHING)]
    place = DAMAGED * (len(broker.log.data) // 10) + 4
    write_damaged(broker, place)
    broker.log.write_queues(broker.folder / "store")
    broker.commit(saved_at=after(60), cg=3)
    broker.night(events)
    assert broker.received("cg") == [0, 1, 2]
    broker.grow()
    write_damaged(broker, place)
    broker.log.write_queues(broker.folder / "store")
    broker.commit(saved_at=after(120), cg=20)
    broker.night(events)
    assert broker.received("cg") == [number for number in range(20) if number != DAMAGED]
    write_damaged(broker)
    broker.night(events)
    check(broker, 20)


@pytest.mark.parametrize("committed", [4, 10])
def test_the_last_message_of_a_night_that_is_readable_two_nights_later(broker: GrowingBroker, committed: int) -> None:
    """It is stored before the first night ends, and is of the second one. The group was behind, or was not."""
    events = [sql(BEFORE, "cg", EVERYTHING)]
    whole = broker.log.data
    broker.log.damage(9)
    broker.log.write(broker.folder / "store")
    night_of_a_slow_group(broker, events, committed=committed)
    broker.grow()
    night_of_a_slow_group(broker, events, committed=20)
    broker.log.data = whole + broker.log.data[len(whole) :]
    broker.grow()
    night_of_a_slow_group(broker, events, committed=30)
    assert broker.received("cg") == list(range(30))
    assert broker.passes_audits()
