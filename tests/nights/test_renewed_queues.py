"""Groups whose topic is deleted and created again, or of which an expired queue is removed."""

from __future__ import annotations

import json

import pytest

from jobs import explain, lag, maintain, what_if
from tests.nights.commands import differing, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, delete_topic, event, save, sql

EVERYTHING = "n IS NOT NULL"
THERE = sql(BEFORE, "there", EVERYTHING)
"""A group that consumes all the time; the group ``away`` consumes five messages and leaves."""
AWAY = [sql(BEFORE, "away", EVERYTHING), event(after(5), "unregister", "away")]


def back(at: int, group: str = "away", consume_from: str = "first") -> str:
    return event(at, "register", group, type="SQL92", expression=EVERYTHING, consume_from=consume_from)


def numbers(broker: GrowingBroker, group: str) -> list[int]:
    """The messages that a group received, by their number in the log."""
    log = sorted(row["commitlog_offset"] for row in rows_of(broker.folder / "w", "commitlog", "commitlog_offset"))
    rows = rows_of(broker.folder / "w", "deliveries", "consumer_group", "commitlog_offset")
    return sorted(log.index(row["commitlog_offset"]) for row in rows if row["consumer_group"] == group)


def exact_lag(broker: GrowingBroker, group: str) -> int:
    ended = broker.run(lag, "--warehouse", broker.folder / "w", "--group", group, "--json")
    (row,) = map(json.loads, ended.out.splitlines())
    return int(row["would_get"])


def outcome(broker: GrowingBroker, message: str) -> str:
    ended = broker.run(explain, "--warehouse", broker.folder / "w", "--message", message, "--group", "away", "--json")
    return str(json.loads(ended.out)["outcome"])


def first_night(broker: GrowingBroker) -> None:
    save(broker, there=10, away=5)
    assert broker.night([THERE, *AWAY]).code == 0
    assert (numbers(broker, "there"), numbers(broker, "away")) == ([*range(10)], [*range(5)])


@pytest.mark.parametrize("new_messages", [3, 7, 20])
@pytest.mark.parametrize("consume_from", ["first", "last"])
def test_groups_get_the_messages_of_the_new_topic(broker: GrowingBroker, new_messages: int, consume_from: str) -> None:
    """The new queue is shorter than the group's old offset, shorter than the old queue, or longer."""
    first_night(broker)
    delete_topic(broker, new_messages)
    save(broker, there=new_messages)
    assert broker.night([THERE, *AWAY]).code == 0
    assert numbers(broker, "there") == [*range(10 + new_messages)]
    assert numbers(broker, "away") == [*range(5)]
    assert exact_lag(broker, "away") == new_messages
    assert broker.passes_audits()
    broker.log.append(2)
    end = 10 + new_messages + 2
    save(broker, there=new_messages + 2, away=new_messages + 2, new=new_messages + 2)
    at = after(end - 1)
    events = [THERE, *AWAY, back(at, "away", consume_from), back(at, "new", consume_from)]
    assert broker.night(events).code == 0
    assert numbers(broker, "there") == [*range(end)]
    assert numbers(broker, "away") == [*range(5), *range(10, end)]
    assert numbers(broker, "new") == [*range(10, end)]
    assert broker.passes_audits()
    before = broker.facts()
    for since in (0, after(11), after(end - 1)):
        assert broker.night(events, "--redo-from", since).code == 0
        assert differing(broker.facts(), before) == []
    next((broker.folder / "w" / "delivery_blocks").rglob("*.parquet")).unlink()
    assert broker.run(maintain, "--rebuild", "--warehouse", broker.folder / "w").code == 0
    assert differing(broker.facts(), before) == []


def test_all_in_one_night(broker: GrowingBroker) -> None:
    """A group that begins before the topic is deleted gets the old messages; others get the new ones."""
    broker.log.append(1)
    delete_topic(broker, 6)
    save(broker, there=6, early=3, late=6, away=6)
    late = after(15)
    events = [THERE, *AWAY, back(after(9), "early"), event(after(11), "unregister", "early")]
    assert broker.night([*events, back(late), back(late, "late")]).code == 0
    assert numbers(broker, "there") == [*range(17)]
    assert numbers(broker, "early") == [*range(11)]
    assert numbers(broker, "away") == [*range(5), *range(11, 17)]
    assert numbers(broker, "late") == [*range(11, 17)]
    assert exact_lag(broker, "early") == 3
    assert broker.passes_audits()


def test_a_queue_without_new_messages_is_deleted_with_its_topic(broker: GrowingBroker) -> None:
    broker.log.append(4, queue_id=1)
    broker.log.append(1)
    first = [*range(5), *range(10, 14)]
    save(broker, away=5)
    assert broker.night(AWAY).code == 0
    delete_topic(broker, 3)
    save(broker)
    assert broker.night(AWAY).code == 0
    save(broker)
    broker.log.append(1)
    save(broker, away=4)
    assert broker.night([*AWAY, back(after(19))]).code == 0
    assert set(numbers(broker, "away")) & set(first[5:]) == set()
    assert numbers(broker, "away") == [*range(5), *range(15, 19)]
    assert broker.passes_audits()


def test_an_offset_that_is_set_in_the_new_queue_counts(broker: GrowingBroker) -> None:
    first_night(broker)
    broker.log.time += 1_000
    reset = event(after(11), "reset_offset", "away", queue_id=0, offset=7)
    again = event(after(14), "reset_offset", "away", queue_id=0, offset=2)
    delete_topic(broker, 6)
    save(broker, there=6, away=6)
    assert broker.night([THERE, *AWAY, reset, again, back(after(15))]).code == 0
    assert numbers(broker, "away") == [*range(5), *range(12, 16)]
    assert broker.passes_audits()


def test_without_queue_files_the_offsets_are_gone_with_the_topic(broker: GrowingBroker) -> None:
    """One group that is away had committed five messages, and another one none."""
    events = [THERE, *AWAY, sql(BEFORE, "idle", EVERYTHING), event(after(5), "unregister", "idle")]
    broker.commit(broker.log.time, there=10, away=5, idle=0)
    broker.night(events)
    delete_topic(broker, 7)
    broker.log.write(broker.folder / "store")
    broker.commit(broker.log.time, there=7)
    broker.night(events)
    lines = broker.run(lag, "--warehouse", broker.folder / "w", "--json").out.splitlines()
    lags = {row["consumer_group"]: (row["committed"], row["behind"]) for row in map(json.loads, lines)}
    assert lags == {"there": (7, 0), "away": (None, 7), "idle": (None, 7)}


def test_what_waited_in_the_old_queue_is_lost(broker: GrowingBroker) -> None:
    first_night(broker)
    delete_topic(broker, 3)
    save(broker, there=3)
    assert broker.night([THERE, *AWAY]).code == 0
    stats = [row for row in rows_of(broker.folder / "w", "delivery_stats") if row["consumer_group"] == "away"]
    assert sorted((row["lost"], row["pending"]) for row in stats) == [(0, 5), (5, 3)]
    messages = sorted((row["commitlog_offset"], row["msg_id"]) for row in rows_of(broker.folder / "w", "commitlog"))
    assert [outcome(broker, messages[number][1]) for number in (2, 7, 11)] == ["DELIVERED", "NOT_SUBSCRIBED", "PENDING"]
    ended = broker.run(what_if, "--warehouse", broker.folder / "w", "--group", "away", "--sql", "n = '0'", "--json")
    assert json.loads(ended.out)["changes"][0]["pending"] == 1


@pytest.mark.parametrize("new_messages", [4, 8])
def test_offsets_stay_if_an_expired_queue_is_removed(broker: GrowingBroker, new_messages: int) -> None:
    """The away group's offset is 5. It goes on there, or at the end of the queue if that is shorter."""
    first_night(broker)
    segment = broker.log.segment
    broker.log.append(1, "Other", body=b"x" * (segment - len(broker.log.data) % segment))
    broker.log.queues.pop(("T", 0))
    broker.log.append(new_messages)
    save(broker, there=new_messages, away=5)
    broker.log.write(broker.folder / "store", segment)
    assert broker.night([THERE, *AWAY]).code == 0
    broker.log.append(2)
    save(broker, there=new_messages + 2, away=new_messages + 2, new=new_messages + 2)
    broker.log.write(broker.folder / "store", segment)
    at = broker.log.messages[-1].stored_at - 500
    assert broker.night([THERE, *AWAY, back(at), back(at, "new", "last")]).code == 0
    first = 11
    end = first + new_messages + 2
    assert numbers(broker, "there") == [*range(10), *range(first, end)]
    assert numbers(broker, "new") == [*range(first, end)]
    assert numbers(broker, "away") == [*range(5), *range(first + 5, end)]
    assert broker.passes_audits()


def test_what_a_new_group_missed_is_counted_in_the_other_queues_of_a_removed_one(broker: GrowingBroker) -> None:
    """Queue 1 is removed, and begins again with four messages. Queue 0 has five older ones, of which it gets none."""
    broker.log.append(6, queue_id=1)
    save(broker, there=10)
    assert broker.night([THERE]).code == 0
    segment = broker.log.segment
    broker.log.append(1, "Other", body=b"x" * (segment - len(broker.log.data) % segment))
    broker.log.append(5)
    broker.log.queues.pop(("T", 1))
    broker.log.append(4, queue_id=1)
    save(broker, there=15)
    broker.log.write(broker.folder / "store", segment)
    summary = broker.night([THERE, back(broker.log.time, "new", "last")]).out
    assert numbers(broker, "new") == [*range(22, 26)]
    began = "new on T began 2026-11-18 11:07:06.000"
    assert f"{began} with 4 messages stored before it came: consume_from last, but the first message" in summary
    assert f"{began} without 5 messages stored before it came: consume_from last" in summary
