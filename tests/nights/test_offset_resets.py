"""Offset resets: a group pulls messages again, at once or when it returns."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from jobs import deliver, dispatch, explain, ingest, maintain, nightly
from jobs import register as register_job
from tests.broker_log import EVERY, FIRST_TIME
from tests.nights.commands import Run, night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"


def register(at: int, expression: str = EVERYTHING) -> str:
    return sql(at, "cg", expression)


def leave(at: int) -> str:
    return event(at, "unregister", "cg")


def reset(at: int, offset: int) -> str:
    return event(at, "reset_offset", "cg", queue_id=0, offset=offset)


def decided_to(broker: GrowingBroker) -> int | None:
    offset: int | None = next(rows_of(broker.folder / "w", "current_offsets"))["decided_to"]
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
    assert (broker.received("cg"), decided_to(broker)) == (list(range(6)), 6)
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
    assert (broker.received("cg"), decided_to(broker)) == (list(range(6)), 2)
    broker.grow()
    broker.night(events)
    assert (broker.received("cg"), decided_to(broker)) == (list(range(6)), 2)
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


def outcome_and_reason(broker: GrowingBroker, offset: int) -> str:
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
    assert [outcome_and_reason(broker, offset) for offset in range(2, 6)] == [MOVED] * 4
    assert outcome_and_reason(broker, 7) == NO_MATCH


def test_a_first_night_with_a_reset_forwards_has_no_later_beginning(broker: GrowingBroker) -> None:
    """The group came late, and pulled from the first message on."""
    other = "n = '99'"
    broker.night([register(after(3), other), leave(after(4)), reset(after(7), 8), register(after(9), other)])
    assert [outcome_and_reason(broker, offset) for offset in (0, 2)] == [NO_MATCH] * 2
    assert [outcome_and_reason(broker, offset) for offset in (4, 7)] == [MOVED] * 2


def test_a_group_that_was_reset_before_it_first_came_began_there(broker: GrowingBroker) -> None:
    other = "n = '99'"
    events = [reset(BEFORE, 2), register(after(3), other), leave(after(4)), reset(after(7), 8)]
    broker.night([*events, register(after(9), other)])
    assert (
        outcome_and_reason(broker, 1)
        == "never asked for, because     the group first came later, and began at a later message"
    )
    assert (outcome_and_reason(broker, 2), outcome_and_reason(broker, 5)) == (NO_MATCH, MOVED)


def test_what_was_jumped_over_is_pulled_after_a_reset_backwards(broker: GrowingBroker) -> None:
    events = [register(BEFORE), leave(after(2)), reset(after(5), 6), register(after(6), "n = '3'"), reset(after(8), 1)]
    broker.night(events)
    assert [outcome_and_reason(broker, offset).split(",")[0] for offset in (2, 3)] == ["not delivered", "delivered"]


def test_the_last_of_several_deliveries_is_explained_after_maintenance(broker: GrowingBroker) -> None:
    """Maintenance writes a checkpoint, which lists the files of the nights in any order."""
    events = [register(BEFORE)]
    broker.night(events)
    for count in range(1, 6):
        broker.grow()
        events += [reset(after(10 * count + 4), 2), register(after(10 * count + 6), f"n <> '-{count}'")]
        broker.night(events)
    warehouse = ("--warehouse", broker.folder / "w")
    place = ("--group", "cg", "--topic", "T", "--queue", "0", "--offset", "3", "--json")
    before = broker.run(explain, *warehouse, *place).out
    assert json.loads(before)["subscription"]["expression"] == "n <> '-4'"
    assert broker.run(maintain, *warehouse).code == 0
    assert broker.run(explain, *warehouse, *place).out == before


PUBLIC = Path(__file__).parents[1] / "cases" / "public" / "reset-by-time"


def by_time(at: int, to: int, **more: object) -> str:
    return event(at, "reset_offset", "cg", to=to, **more)


def stored(number: int) -> int:
    """When a message of queue 0 was stored."""
    return FIRST_TIME + number * EVERY


def test_a_reset_by_time_is_of_all_queues_of_the_topic(run: Run, tmp_path: Path) -> None:
    for name in ("timestamp", "to"):
        events = tmp_path / f"{name}.jsonl"
        events.write_text((PUBLIC / "events.jsonl").read_text().replace('"timestamp"', f'"{name}"'))
        warehouse = tmp_path / name
        assert run(nightly, *night(warehouse, PUBLIC / "log.jsonl", events, PUBLIC / "broker.conf")).code == 0
        assert not list(rows_of(warehouse, "quarantine"))
        again = Counter((row["queue_id"], row["queue_offset"]) for row in rows_of(warehouse, "deliveries"))
        assert {place for place, times in again.items() if times > 1} == {
            (0, 2),
            (0, 3),
            (0, 4),
            (1, 2),
            (1, 3),
            (1, 4),
        }


def goes_to(broker: GrowingBroker, first: int, to: int) -> None:
    broker.night([register(BEFORE), by_time(after(8), to)], "--redo-from", 0)
    again = Counter(broker.received("cg"))
    assert sorted(again.elements()) == sorted([*range(10), *range(first, 8)]), to


@pytest.mark.parametrize("has_queues", [False, True])
def test_the_first_message_that_was_stored_then_or_later(broker: GrowingBroker, has_queues: bool) -> None:
    """At 8, before the last two messages: of a time before all of them, of each one, and of a later one."""
    if has_queues:
        broker.log.write_queues(broker.folder / "store")
    for first, to in ((0, 0), (0, stored(0)), (3, stored(3)), (4, stored(3) + 1), (8, after(8)), (8, stored(9) + 5)):
        goes_to(broker, first, to)
    assert broker.passes_audits()


def test_a_queue_whose_first_messages_the_broker_deleted_before_the_first_night(broker: GrowingBroker) -> None:
    broker.log.segment = len(broker.log.data)
    broker.log.append(10)
    broker.log.write(broker.folder / "store", start=broker.log.segment)
    broker.night([register(BEFORE), by_time(after(18), 0)])
    assert broker.received("cg") == sorted([*range(10, 20), *range(10, 18)])


def test_messages_of_one_time(broker: GrowingBroker) -> None:
    broker.log.time = stored(12)
    for _ in range(4):
        broker.log.append(1)
        broker.log.time = stored(12)
    broker.log.time = stored(14)
    broker.log.append(1)
    for has_queues in (False, True):
        broker.log.write(broker.folder / "store")
        if has_queues:
            broker.log.write_queues(broker.folder / "store")
        broker.night([register(BEFORE), by_time(stored(13), stored(12))], "--redo-from", 0)
        assert broker.received("cg") == sorted([*range(15), *range(10, 14)])


def test_of_one_queue(broker: GrowingBroker) -> None:
    broker.log.append(4, queue_id=1)
    broker.log.write(broker.folder / "store")
    broker.night([register(BEFORE), by_time(after(13), stored(5), queue_id=1)])
    rows = Counter((row["queue_id"], row["queue_offset"]) for row in rows_of(broker.folder / "w", "deliveries"))
    assert {place for place, times in rows.items() if times > 1} == {(1, offset) for offset in range(3)}


def test_a_group_that_is_away_goes_on_there_when_it_returns(broker: GrowingBroker) -> None:
    """The messages are of the night before."""
    events = [register(BEFORE), leave(after(8))]
    broker.night(events)
    broker.grow()
    events += [by_time(after(12), stored(3))]
    broker.night(events)
    assert (broker.received("cg"), decided_to(broker)) == (list(range(8)), 3)
    broker.grow()
    broker.night([*events, register(after(22))])
    assert broker.received("cg") == sorted([*range(8), *range(3, 30)])
    assert broker.passes_audits()


def test_steps_and_repeated_nights_decide_alike(broker: GrowingBroker) -> None:
    events = [register(BEFORE), by_time(after(15), stored(4))]
    broker.night(events)
    broker.grow()
    broker.night(events)
    expected = broker.received("cg")
    assert expected == sorted([*range(20), *range(4, 15)])
    broker.night(events, "--redo-from", 0)
    assert broker.received("cg") == expected
    shutil.rmtree(broker.folder / "w" / "delivery_blocks")
    assert broker.run(maintain, "--warehouse", broker.folder / "w", "--rebuild").code == 0
    assert broker.received("cg") == expected
    given = ("--warehouse", broker.folder / "steps", "--broker-config", broker.folder / "broker.conf")
    assert broker.run(ingest, *given, "--store", broker.folder / "store").code == 0
    assert broker.run(dispatch, *given).code == 0
    assert broker.run(register_job, *given, "--subscriptions", broker.folder / "events.jsonl").code == 0
    assert broker.run(deliver, *given).code == 0
    assert broker.received("cg", "steps") == expected


def test_explain_knows_the_reset(broker: GrowingBroker) -> None:
    broker.night([register(BEFORE, "n = '9'"), by_time(after(8), stored(3)), register(after(8) + 1, "n = '1'")])
    place = ("--topic", "T", "--queue", 0, "--group", "cg", "--json", "--warehouse", broker.folder / "w")
    for offset in (2, 5):
        answer = json.loads(broker.run(explain, *place, "--offset", offset).out)
        assert answer["outcome"].startswith("STOPPED")
    assert broker.passes_audits()


WRONG = {
    '"to": -1': "to of a reset_offset must be 0 or more, not -1",
    '"to": 5, "offset": 3, "queue_id": 0': "a reset_offset has offset or to, not both",
    '"too": 5': "too is not known; did you mean to?",
    '"queue_id": 1': "offset of a reset_offset must be 0 or more, not None",
    '"at": 9': "a reset_offset needs queue_id and offset, or to: a time in milliseconds",
}


@pytest.mark.parametrize(("fields", "reason"), WRONG.items())
def test_what_is_no_reset(broker: GrowingBroker, fields: str, reason: str) -> None:
    line = f'{{"at": 9, "op": "reset_offset", "group": "cg", "topic": "T", {fields}}}'
    broker.night([register(BEFORE), line])
    assert [row["reason"] for row in rows_of(broker.folder / "w", "quarantine")] == [reason]
