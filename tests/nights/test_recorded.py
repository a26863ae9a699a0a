"""Nights with what record wrote: offsets at a leave, changes between two looks, times without a look."""

from __future__ import annotations

import json
from pathlib import Path

from jobs import nightly
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, after, event, sql


def left(at: int, since: int, offset: int) -> str:
    row = {"at": at, "op": "unregister", "group": "cg", "since": since, "offsets": {"T": {"0": offset}}}
    return json.dumps(row)


def uncertain(broker: GrowingBroker) -> int:
    return sum(row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats"))


def test_a_group_goes_on_at_the_offset_that_it_had_when_it_left(broker: GrowingBroker) -> None:
    """It was seen to be gone only after message 8, and had left after message 2."""
    broker.night([sql(BEFORE, "cg", LOW), left(after(9), after(1), 3), sql(after(9) + 100, "cg", HIGH)])
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9]
    assert uncertain(broker) == 0
    assert broker.passes_audits()


def test_the_offset_counts_also_if_the_group_comes_back_in_a_later_night(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW), left(after(9), after(1), 3)]
    broker.night(events)
    assert broker.received("cg") == [0, 1, 2]
    broker.grow()
    broker.night([*events, sql(after(15), "cg", HIGH)])
    assert broker.received("cg") == [0, 1, 2, 5, 6, 7, 8, 9, 15]


def test_what_was_stored_between_two_looks_is_uncertain(broker: GrowingBroker) -> None:
    """Messages 2 to 7 match one of both expressions."""
    broker.night([sql(BEFORE, "cg", LOW), sql(after(8), "cg", HIGH, since=after(2))])
    assert broker.received("cg") == [0, 1, 2, 3, 4, 8, 9]
    assert uncertain(broker) == 6


def test_a_time_without_a_look_is_said_once(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW), event(after(4), "not_watched", "cg", since=after(2))]
    said = "nobody watched the broker from 2026-11-18 11:06:41.500 to 2026-11-18 11:06:43.500"
    assert said in broker.night(events).out
    broker.grow()
    assert said not in broker.night(events).out


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
    assert (refused.code, "--recorded has the subscriptions" in refused.error) == (2, True)
    empty = broker.folder / "empty"
    empty.mkdir()
    refused = broker.run(nightly, *arguments[:2], "--recorded", empty, *arguments[4:])
    assert (refused.code, "has no recording" in refused.error) == (2, True)


def test_clients_that_broadcast_are_named(broker: GrowingBroker) -> None:
    lines = [sql(BEFORE, "cg", LOW), sql(BEFORE, "cg_each", LOW, message_model="broadcasting")]
    assert "cg_each on T" in broker.night(lines).out
    assert broker.received("cg_each") == []
