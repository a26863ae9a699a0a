"""Snapshots without committed offsets that an earlier snapshot had: a copy that lacks them, or a group without queues.

Then nobody knows how far the group came, and its messages count as consumed up to where it left. Steps and repeated
nights must tell the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jobs import audit, deliver, dispatch, ingest, maintain, register
from tests.nights.commands import differing, without_runs
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"


def without_file(broker: GrowingBroker) -> None:
    (broker.folder / "store" / "config" / "consumerOffset.json").unlink(missing_ok=True)


def without_group(broker: GrowingBroker) -> None:
    broker.commit(broker.log.time, other=20)


def without_time(broker: GrowingBroker) -> None:
    """A broker of 4.x writes no dataVersion; only a damaged one has no time."""
    broker.log.write_queues(broker.folder / "store")
    document = {"offsetTable": {"T@other": {"0": 20}}, "dataVersion": {}}
    (broker.folder / "store" / "config" / "consumerOffset.json").write_text(json.dumps(document))


def without_queue(broker: GrowingBroker) -> None:
    document = {"offsetTable": {"T@cg": {"1": 5}}, "dataVersion": {"timestamp": broker.log.time}}
    (broker.folder / "store" / "config" / "consumerOffset.json").write_text(json.dumps(document))


VANISHED: list[Callable[[GrowingBroker], None]] = [without_file, without_group, without_time, without_queue]


def steps(broker: GrowingBroker) -> None:
    given = ("--warehouse", broker.folder / "steps", "--broker-config", broker.folder / "broker.conf")
    ends = [
        broker.run(ingest, *given, "--store", broker.folder / "store"),
        broker.run(register, *given, "--subscriptions", broker.folder / "events.jsonl"),
        broker.run(dispatch, *given),
        broker.run(deliver, *given),
    ]
    assert [ended.code for ended in ends] == [0] * 4, ends


@pytest.mark.parametrize("vanish", VANISHED)
def test_steps_and_repeated_nights_tell_what_the_night_told(
    broker: GrowingBroker, vanish: Callable[[GrowingBroker], None]
) -> None:
    """The group leaves in the second night, and is back in the third."""
    events = [sql(BEFORE, group, EVERYTHING) for group in ("cg", "other")]
    broker.log.append(5, queue_id=1)
    broker.log.write(broker.folder / "store")
    for more in ([], [event(after(23), "unregister", "cg")], [sql(after(30), "cg", EVERYTHING)]):
        events += more
        if more:
            broker.grow()
            vanish(broker)
        else:
            broker.commit(broker.log.time, cg=0, other=3)
        assert broker.night(events).code == 0
        steps(broker)
        expected = without_runs(broker.folder / "w")
        assert differing(without_runs(broker.folder / "steps"), expected) == []
        if more:
            for table in ("delivery_blocks", "current_offsets"):
                next((broker.folder / "w" / table).rglob("*.parquet")).unlink()
            assert broker.run(maintain, "--rebuild", "--warehouse", broker.folder / "w").code == 0
            assert differing(without_runs(broker.folder / "w"), expected) == []
    assert broker.received("cg") == sorted([*range(5), *range(30)])
    assert broker.passes_audits()


@pytest.mark.parametrize("has_queues", [False, True])
def test_an_offset_that_only_the_first_of_two_ingests_of_a_night_has(broker: GrowingBroker, has_queues: bool) -> None:
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(8), "unregister", "cg")]
    if has_queues:
        broker.log.write_queues(broker.folder / "store")
    given = ("--warehouse", broker.folder / "steps", "--broker-config", broker.folder / "broker.conf")
    broker.commit(broker.log.time, cg=3)
    assert broker.run(ingest, *given, "--store", broker.folder / "store").code == 0
    broker.commit(broker.log.time + 5)
    broker.night(events)
    steps(broker)
    assert differing(without_runs(broker.folder / "steps"), without_runs(broker.folder / "w")) == []
    assert broker.received("cg", "steps") == list(range(8))
    assert broker.run(audit, "--warehouse", broker.folder / "steps", "--all").code == 0
