"""explain, where a group's offset was moved or a queue began again: what the group pulled, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs import explain
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, delete_topic, event, save, sql

NOTHING = "n = '99'"
OTHER = sql(BEFORE, "other", NOTHING)


def begins(at: int) -> str:
    return sql(at, "cg", NOTHING)


def night(broker: GrowingBroker, *lines: str) -> None:
    ended = broker.night([OTHER, *lines])
    assert ended.code == 0, ended.error


def explained(broker: GrowingBroker, number: int, group: str = "cg") -> dict[str, Any]:
    """The explanation of a message, by its number in the log."""
    warehouse = broker.folder / "w"
    ids = sorted((row["commitlog_offset"], row["msg_id"]) for row in rows_of(warehouse, "commitlog"))
    asked = ("--warehouse", warehouse, "--group", group, "--message", ids[number][1], "--json")
    answer: dict[str, Any] = json.loads(broker.run(explain, *asked).out)
    return answer


def test_what_was_before_a_later_beginning_waits_if_the_offset_is_moved_back(broker: GrowingBroker) -> None:
    """The group begins at offset 5, and leaves. Then its offset is 2, so it pulls from there when it returns."""
    events = [begins(after(12)), event(after(15), "unregister", "cg")]
    save(broker, cg=5)
    night(broker)
    broker.log.append(10)
    save(broker, cg=15)
    night(broker, *events)
    assert explained(broker, 3)["outcome"] == "NOT_SUBSCRIBED"
    broker.log.append(10)
    save(broker, cg=2)
    night(broker, *events)
    assert [explained(broker, number)["outcome"] for number in (1, 3)] == ["NOT_SUBSCRIBED", "PENDING"]


def test_what_was_before_a_later_beginning_is_pulled_after_a_reset(broker: GrowingBroker) -> None:
    save(broker, cg=5)
    night(broker)
    broker.log.append(10)
    save(broker)
    night(broker, begins(after(12)))
    broker.log.append(10)
    save(broker)
    night(broker, begins(after(12)), event(after(25), "reset_offset", "cg", queue_id=0, offset=2))
    answers = [explained(broker, number) for number in (1, 3)]
    assert [answer["outcome"] for answer in answers] == ["NOT_SUBSCRIBED", "STOPPED_BY_EXPRESSION"]
    assert answers[1]["pulled_at"] == after(25)


@pytest.mark.parametrize("waits", [True, False])
def test_a_group_that_comes_after_the_topic_was_deleted_never_asked_for_the_old_messages(
    broker: GrowingBroker, waits: bool
) -> None:
    """It comes in the same night, or in a later one."""
    save(broker)
    night(broker)
    delete_topic(broker, 6)
    save(broker)
    if waits:
        night(broker)
        broker.log.append(6)
        save(broker)
    night(broker, begins(broker.log.messages[-1].stored_at - 500))
    answers = [explained(broker, number)["outcome"] for number in (3, 12)]
    assert answers == ["NOT_SUBSCRIBED", "STOPPED_BY_EXPRESSION"]


def test_a_reset_in_the_new_queue_is_none_in_the_old_one(broker: GrowingBroker) -> None:
    save(broker)
    night(broker, begins(BEFORE))
    broker.log.append(5)
    delete_topic(broker, 6)
    save(broker)
    night(broker, begins(BEFORE), event(after(18), "reset_offset", "cg", queue_id=0, offset=0))
    pulled = [explained(broker, number)["pulled_at"] for number in (3, 12, 16)]
    assert pulled == [broker.log.messages[3].stored_at, broker.log.messages[12].stored_at, after(18)]


def test_a_group_whose_offsets_were_removed_pulls_the_messages_again(broker: GrowingBroker) -> None:
    events = [begins(BEFORE), event(after(5), "unregister", "cg")]
    save(broker, cg=5, other=10)
    night(broker, *events)
    broker.log.append(10)
    save(broker, other=20)
    night(broker, *events)
    assert explained(broker, 3)["outcome"] == "PENDING"
    broker.log.append(10)
    save(broker, cg=30, other=30)
    night(broker, *events, begins(after(25)))
    assert [explained(broker, number)["pulled_at"] for number in (3, 12)] == [after(25), after(25)]


def test_a_reset_does_not_bring_back_what_the_broker_deleted(broker: GrowingBroker) -> None:
    """The broker moves the offset to the first message that it still has."""
    broker.log.append(1, "Other", body=b"x" * (broker.log.segment - len(broker.log.data) % broker.log.segment))
    save(broker)
    night(broker, begins(BEFORE))
    broker.log.append(10)
    save(broker)
    broker.log.write(broker.folder / "store", broker.log.segment)
    late = sql(after(15), "cg_late", NOTHING)
    resets = [event(after(17), "reset_offset", group, queue_id=0, offset=2) for group in ("cg", "cg_late")]
    night(broker, begins(BEFORE), late, *resets)
    assert explained(broker, 3)["pulled_at"] == broker.log.messages[3].stored_at
    assert explained(broker, 12)["pulled_at"] == after(17)
    assert explained(broker, 3, "cg_late")["outcome"] == "NOT_SUBSCRIBED"


def test_a_message_that_was_pulled_once_stays_so_if_the_offset_is_moved_back_and_forth(broker: GrowingBroker) -> None:
    events = [begins(BEFORE), event(after(5), "unregister", "cg")]
    save(broker, cg=5)
    night(broker, *events)
    for offset, outcomes in ((2, ["PENDING", "PENDING"]), (8, ["STOPPED_BY_BIT_MAP", "NOT_SUBSCRIBED"])):
        broker.log.append(10)
        save(broker, cg=offset)
        night(broker, *events)
        assert [explained(broker, number)["outcome"] for number in (3, 6)] == outcomes


def test_messages_that_were_pulled_before_the_offset_was_moved_forward_were_pulled(broker: GrowingBroker) -> None:
    """The group begins at offset 2, and leaves. Then its offset is 8, and no event says why."""
    save(broker, cg=2)
    night(broker)
    broker.log.append(10)
    save(broker, cg=18)
    night(broker, begins(after(12)), event(after(15), "unregister", "cg"))
    answers = [explained(broker, number)["outcome"] for number in (1, 3, 14, 16)]
    assert answers == ["NOT_SUBSCRIBED", "STOPPED_BY_EXPRESSION", "STOPPED_BY_BIT_MAP", "NOT_SUBSCRIBED"]


def test_a_reset_after_the_beginning_does_not_move_the_beginning(broker: GrowingBroker) -> None:
    """The group begins at offset 4, and pulls all from offset 7 on once more."""
    save(broker, cg=4)
    night(broker)
    broker.log.append(10)
    save(broker, cg=20)
    night(broker, begins(after(12)), event(after(15), "reset_offset", "cg", queue_id=0, offset=7))
    answers = [explained(broker, number) for number in (3, 4, 8)]
    assert [answer["outcome"] for answer in answers] == ["NOT_SUBSCRIBED", *["STOPPED_BY_EXPRESSION"] * 2]
    assert [answer["pulled_at"] for answer in answers[1:]] == [after(12), after(15)]


def test_messages_that_were_pulled_before_the_offsets_were_removed_were_pulled(broker: GrowingBroker) -> None:
    """The group pulls all messages of the night and leaves. When it ends, the broker has no offset of it any more."""
    save(broker, cg=10, other=10)
    night(broker, begins(BEFORE))
    broker.log.append(10)
    events = [begins(BEFORE), event(after(15), "unregister", "cg")]
    save(broker, other=20)
    night(broker, *events)
    broker.log.append(10)
    save(broker, cg=30, other=30)
    night(broker, *events)
    answers = [explained(broker, number)["outcome"] for number in (3, 12, 17)]
    assert answers == ["STOPPED_BY_BIT_MAP", "STOPPED_BY_BIT_MAP", "NOT_SUBSCRIBED"]
