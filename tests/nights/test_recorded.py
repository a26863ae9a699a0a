"""Nights with what record wrote: offsets at a leave, changes between two looks, times without a look."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from answers.explain import NO_SUBSCRIPTION_THEN
from filtering.delivery.pull_window import Reason
from jobs import explain, nightly, verify
from tests.broker_log import EVERY
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, HIGH, LOW, MINUTE, GrowingBroker, after, event, sql

ANY = "n IS NOT NULL"


def left(at: int, since: int, offset: int) -> str:
    """The group left, or moved its offset although it had left."""
    row = {"at": at, "op": "unregister", "group": "cg", "since": since, "offsets": {"T": {"0": offset}}}
    return json.dumps(row)


def came(at: int, expression: str, offset: int) -> str:
    """The group came, and went on at an offset."""
    subscription = {"topic": "T", "type": "SQL92", "expression": expression, "sub_version": at}
    row = {"at": at, "op": "heartbeat", "group": "cg", "client_id": "c1", "subscriptions": [subscription]}
    return json.dumps(row | {"consume_from": "first", "offsets": {"T": {"0": offset}}})


def uncertain(broker: GrowingBroker) -> int:
    return sum(row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats"))


def test_a_group_goes_on_at_the_offset_that_it_had_when_it_left(broker: GrowingBroker) -> None:
    """It was seen to be gone only after message 8, and had left after message 2."""
    broker.night([sql(BEFORE, "cg", LOW), left(after(9), after(1), 3), sql(after(9) + 100, "cg", HIGH)])
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9]
    assert uncertain(broker) == 2  # 1 and 2: it may have changed its subscription before it left
    assert broker.passes_audits()


def test_the_offset_counts_also_if_the_group_comes_back_in_a_later_night(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW), left(after(9), after(1), 3)]
    broker.night(events)
    assert broker.received("cg") == [0, 1, 2]
    broker.grow()
    broker.night([*events, sql(after(15), "cg", HIGH)])
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9, 15]


@pytest.mark.parametrize("how", ["seen by record", "in the store", "seen before it came back"])
def test_a_client_commits_once_more_after_it_was_seen_to_have_left(broker: GrowingBroker, how: str) -> None:
    """It had received messages 3 and 4, too. Or an operator moved the offset: they are uncertain, as message 2 is."""
    events = [sql(BEFORE, "cg", LOW), left(after(6), after(2), 3)]
    if how == "in the store":
        broker.commit(saved_at=after(9), cg=5)
    else:
        events.append(left(after(7), after(6), 5))
    is_back = how == "seen before it came back"
    broker.night([*events, came(after(8), HIGH, 5)] if is_back else events)
    assert broker.received("cg") == [0, 1, 2, 3, 4, *([5, 6, 7, 8, 9] if is_back else [])]
    assert uncertain(broker) == 3
    assert explained(broker) == {Reason.NOT_WATCHED: [2], Reason.COMMITTED_AWAY: [3, 4]}
    assert broker.passes_audits()
    broker.grow()
    broker.night([*events, came(after(8 if is_back else 15), HIGH, 5)])
    assert broker.received("cg") == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15]
    assert broker.passes_audits()


def test_a_group_goes_on_while_another_client_has_the_topic(broker: GrowingBroker) -> None:
    """A look saw that the one left, before it saw the other that had come."""
    gone = json.loads(left(after(5), after(2), 3)) | {"client_id": "c0"}
    broker.night([came(after(4), ANY, 3), json.dumps(gone)])
    assert broker.received("cg") == [3, 4, 5, 6, 7, 8, 9]
    assert uncertain(broker) == 0


def test_an_operator_moves_the_offset_of_a_group_that_left(broker: GrowingBroker) -> None:
    """A minute later: messages 3 and 4 are skipped, and it is uncertain whether somebody received them."""
    later = MINUTE * EVERY
    broker.log.time += later
    broker.log.append(2)
    broker.log.write(broker.folder / "store")
    events = [sql(BEFORE, "cg", LOW), left(after(6), after(2), 3), left(after(10) + later, after(9), 5)]
    broker.night([*events, came(after(11) + later, HIGH, 5)])
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9]
    assert uncertain(broker) == 3
    assert explained(broker) == {Reason.NOT_WATCHED: [2], Reason.COMMITTED_AWAY: [3, 4]}
    assert broker.passes_audits()


def test_a_group_begins_at_the_offset_that_it_had(broker: GrowingBroker) -> None:
    """It was there before anybody watched."""
    broker.night([came(after(4), ANY, 3)])
    assert broker.received("cg") == [3, 4, 5, 6, 7, 8, 9]
    (reason,) = {row["reason"] for row in rows_of(broker.folder / "w", "pull_windows") if row["only_listed"]}
    assert reason == "first start: the broker has its committed offset"
    assert uncertain(broker) == 0


def test_what_was_stored_before_a_group_was_first_looked_at_is_uncertain(broker: GrowingBroker) -> None:
    """Other clients may have been there, and have pulled what is before the offset at which this one began."""
    broker.night([json.dumps(json.loads(came(after(4), ANY, 3)) | {"since": 0})])
    assert broker.received("cg") == [3, 4, 5, 6, 7, 8, 9]
    assert uncertain(broker) == 4
    assert explained(broker) == {NO_SUBSCRIPTION_THEN: [0, 1, 2], Reason.NOT_WATCHED: [3]}
    assert broker.passes_audits()
    broker.log.write_queues(broker.folder / "store")
    compared = broker.run(verify, "--store", broker.folder / "store", "--warehouse", broker.folder / "w")
    assert compared.out.startswith("cannot judge the filter bit maps")


def test_what_a_group_pulled_at_its_start_is_uncertain_if_it_may_have_subscribed_to_something_else(
    broker: GrowingBroker,
) -> None:
    """It came after message 3, and had another subscription until after message 5."""
    broker.night([sql(after(4), "cg", LOW), sql(after(6), "cg", HIGH, since=after(4))])
    assert broker.received("cg") == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert uncertain(broker) == 6
    assert explained(broker) == {Reason.NOT_WATCHED: [0, 1, 2, 3, 4, 5]}


def test_what_a_held_pull_had_passed_may_come_again_after_a_restart_between_two_looks(broker: GrowingBroker) -> None:
    """It had not matched messages 0 to 4; the client that came next did, if the pull had not ended."""
    left = {"at": after(7), "op": "unregister", "group": "cg", "since": after(6)}
    events = [sql(BEFORE, "cg", HIGH), json.dumps(left), sql(after(7) + 1, "cg", LOW)]
    broker.night(events)
    assert broker.received("cg") == [5, 6]
    assert uncertain(broker) == 6
    assert explained(broker) == {Reason.LEFT_PULL: [0, 1, 2, 3, 4], Reason.NOT_WATCHED: [6]}


def test_a_change_that_was_seen_with_its_time_may_not_have_been_the_only_one(broker: GrowingBroker) -> None:
    """Between two looks: a third subscription may have let messages 0 to 5 pass, or not."""
    broker.night([sql(BEFORE, "cg", ANY), sql(after(6), "cg", ANY, since=after(2))])
    assert broker.received("cg") == list(range(10))
    assert uncertain(broker) == 4
    assert explained(broker) == {Reason.NOT_WATCHED: [2, 3, 4, 5]}


def test_what_was_stored_between_two_looks_is_uncertain(broker: GrowingBroker) -> None:
    """Messages 2 to 7 match one of both expressions."""
    broker.night([sql(BEFORE, "cg", LOW), sql(after(8), "cg", HIGH, since=after(2))])
    assert broker.received("cg") == [0, 1, 2, 3, 4, 8, 9]
    assert uncertain(broker) == 6
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset")
    first_lines = [broker.run(explain, *place, offset).out.splitlines()[0].split(": ")[1] for offset in (1, 4, 5, 8)]
    assert first_lines == ["delivered", "delivered, uncertain", "not delivered, uncertain", "delivered"]


def test_a_time_without_a_look_is_said_once(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW), event(after(4), "not_watched", "cg", since=after(2))]
    said = "nobody watched the broker from 2026-11-18 11:06:41.500 to 2026-11-18 11:06:43.500"
    assert said in broker.night(events).out
    broker.grow()
    assert said not in broker.night(events).out


def explained(broker: GrowingBroker) -> dict[str, list[int]]:
    """What explain says is not certain, with the messages."""
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--json", "--offset")
    said: defaultdict[str, list[int]] = defaultdict(list)
    for offset in range(10):
        if why := json.loads(broker.run(explain, *place, offset).out)["uncertain"]:
            said[why].append(offset)
    return said


def test_a_group_that_nobody_saw_on_a_topic_has_been_there_if_it_has_offsets(broker: GrowingBroker) -> None:
    """It came and left between two looks. It is known by another topic."""
    broker.commit(cg=5)
    broker.night([json.dumps(json.loads(sql(BEFORE, "cg", LOW)) | {"topic": "U"})])
    assert explained(broker) == {NO_SUBSCRIPTION_THEN: [0, 1, 2, 3, 4]}


def recording(broker: GrowingBroker, name: str = "b") -> Path:
    folder = broker.folder / "recorded" / name
    folder.mkdir(parents=True)
    (folder / "subscription_events.jsonl").write_text(sql(BEFORE, "cg", LOW) + "\n")
    (folder / "broker.conf").write_text((broker.folder / "broker.conf").read_text())
    (folder / "state.json").write_text(json.dumps({"begin": after(5), "version": "4.9.7"}))
    return folder.parent


def test_a_recording_is_all_that_a_night_needs(broker: GrowingBroker) -> None:
    arguments = (
        "--store",
        broker.folder / "store",
        "--recorded",
        recording(broker),
        "--warehouse",
        broker.folder / "w",
    )
    ended = broker.run(nightly, *arguments)
    assert ended.code == 0, ended.error
    assert "RocketMQ 4.9.7" in ended.out
    assert broker.received("cg") == [0, 1, 2, 3, 4]
    refused = broker.run(nightly, *arguments, "--broker-config", broker.folder / "broker.conf")
    assert (refused.code, "--recorded has the configuration" in refused.error) == (2, True)
    empty = broker.folder / "empty"
    empty.mkdir()
    refused = broker.run(nightly, *arguments[:2], "--recorded", empty, *arguments[4:])
    assert (refused.code, "has no recording" in refused.error) == (2, True)


def test_a_group_that_was_gone_before_record_came_is_typed(broker: GrowingBroker) -> None:
    folder = recording(broker)
    broker.commit(cg=10, cg_gone=10)
    typed = broker.folder / "typed.yaml"
    typed.write_text("- {group: cg_gone, topic: T, tag: '*', at: 2020-01-01, consume_from: first}\n")

    def night(*more: object) -> str:
        given = ("--store", broker.folder / "store", "--recorded", folder, "--warehouse", broker.folder / "w", *more)
        ended = broker.run(nightly, *given)
        assert ended.code == 0, ended.error
        return ended.out

    assert "without a known subscription: 1; they are not replayed: cg_gone;" in night()
    night("--subscriptions", typed, "--redo-from", 0)
    assert broker.received("cg_gone") == list(range(10))
    assert "nothing new" in night("--subscriptions", typed)


def test_what_record_saw_after_a_night_begins_after_it(broker: GrowingBroker) -> None:
    """The copy of the recording ended at message 5, that of the store at message 9: what is between is uncertain."""
    folder = recording(broker)

    def night(*more: object) -> None:
        given = ("--store", broker.folder / "store", "--recorded", folder, "--warehouse", broker.folder / "w", *more)
        ended = broker.run(nightly, *given)
        assert ended.code == 0, ended.error

    night()
    assert broker.received("cg") == [0, 1, 2, 3, 4]
    assert uncertain(broker) == 5
    with open(folder / "b" / "subscription_events.jsonl", "a") as events:
        events.write(sql(after(8), "cg", HIGH, since=after(5)) + "\n")
    (folder / "b" / "state.json").write_text(json.dumps({"begin": after(40), "version": "4.9.7"}))
    for _ in range(2):
        broker.grow()
        night()
        assert broker.received("cg") == [0, 1, 2, 3, 4, 15]
        assert uncertain(broker) == 5
    assert broker.passes_audits()
    night("--redo-from", after(8))
    assert broker.received("cg") == [0, 1, 2, 3, 4, 8, 9, 15]
    assert broker.passes_audits()


def test_what_one_client_had_not_committed_another_one_may_read(broker: GrowingBroker) -> None:
    """A deployment: the new client comes after message 6, and the old one, which takes all, is gone after message 8."""
    folder = recording(broker)
    old, new = (json.loads(came(at, expression, 0)) for at, expression in ((BEFORE, ANY), (after(7), HIGH)))
    gone = {"at": after(9), "op": "unregister", "group": "cg", "client_id": "c1", "since": after(8)}
    lines = (old, new | {"client_id": "c2"}, gone)
    (folder / "b" / "subscription_events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "b" / "state.json").write_text(json.dumps({"begin": after(40), "version": "5.5.0"}))
    arguments = ("--store", broker.folder / "store", "--recorded", folder, "--warehouse", broker.folder / "w")
    ended = broker.run(nightly, *arguments)
    assert ended.code == 0, ended.error
    assert broker.received("cg") == list(range(10))
    assert uncertain(broker) == 5
    assert explained(broker) == {Reason.HANDED_OVER: [0, 1, 2, 3, 4]}
    assert broker.passes_audits()


def test_clients_that_broadcast_are_named(broker: GrowingBroker) -> None:
    lines = [sql(BEFORE, "cg", LOW), sql(BEFORE, "cg_each", LOW, message_model="broadcasting")]
    assert "cg_each on T" in broker.night(lines).out
    assert broker.received("cg_each") == []
