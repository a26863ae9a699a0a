"""Queues that no client reads: they belong to a client that does not subscribe to the topic (a rolling deployment).

A life of a real broker showed this: when a client reads such a queue again, it goes on at the group's offset.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs import replay
from tests.broker_log import EVERY
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event

T, U = ({"topic": topic, "type": "TAG", "expression": "*", "sub_version": 7} for topic in "TU")


def heartbeat(at: int, client: str, *subscriptions: dict[str, Any]) -> str:
    return event(
        at, "heartbeat", "cg", client_id=client, subscriptions=subscriptions, consume_from="first", topic="T"
    )  # fmt: skip


JOINS = [heartbeat(BEFORE, "c1", T), heartbeat(after(12), "c2", U), heartbeat(after(12) + 1, "c1", T)]
"""The second client gets queue 1 at 12, and does not subscribe to the topic."""
SUBSCRIBES = heartbeat(after(18), "c2", T, U)
LEAVES = event(after(18), "unregister", "cg", client_id="c2").replace(', "topic": "T"', "")


def store(broker: GrowingBroker) -> None:
    """Ten messages in queue 0, two and four in queue 1, of which the client reads two, and two in queue 0."""
    broker.log.append(2, queue_id=1).append(1).append(4, queue_id=1).append(1)
    write(broker)


def write(broker: GrowingBroker) -> None:
    broker.log.write(broker.folder / "store")
    broker.log.write_queues(broker.folder / "store")


def commit(broker: GrowingBroker, saved_at: int, **offsets: int) -> None:
    config = broker.folder / "store" / "config"
    config.mkdir(exist_ok=True)
    table = {"T@cg": {queue.removeprefix("q"): offset for queue, offset in offsets.items()}}
    document = {"offsetTable": table, "dataVersion": {"timestamp": saved_at}}
    (config / "consumerOffset.json").write_text(json.dumps(document))


def received(broker: GrowingBroker, queue_id: int) -> list[tuple[int, int]]:
    """The offsets and times of all deliveries in a queue."""
    rows = (row for row in rows_of(broker.folder / "w", "deliveries") if row["queue_id"] == queue_id)
    return sorted((row["queue_offset"], row["available_at"]) for row in rows)


def stored(broker: GrowingBroker, queue_id: int) -> list[tuple[int, int]]:
    """The offsets and store times of all messages in a queue."""
    return [(each.queue_offset, each.stored_at) for each in broker.log.messages if each.queue_id == queue_id]


@pytest.mark.parametrize("reads", [SUBSCRIBES, LEAVES])
def test_what_waited_is_pulled_when_a_client_reads_the_queue(broker: GrowingBroker, reads: str) -> None:
    store(broker)
    broker.log.append(2, queue_id=1)
    write(broker)
    assert broker.night([*JOINS, reads]).code == 0
    times = stored(broker, 1)
    assert received(broker, 1) == [*times[:2], *((offset, after(18)) for offset in range(2, 6)), *times[6:]]
    assert received(broker, 0) == stored(broker, 0)
    assert broker.passes_audits()


@pytest.mark.parametrize("saved_after", [None, 0, 60_000])
@pytest.mark.parametrize("reads", [SUBSCRIBES, LEAVES])
def test_what_still_waits_when_the_night_ends(broker: GrowingBroker, reads: str, saved_after: int | None) -> None:
    """The committed offsets are not known, or were saved some time after the last message."""
    store(broker)
    ends_at = broker.log.time + (saved_after or 0)
    if saved_after is not None:
        commit(broker, ends_at, q0=12, q1=2)
    broker.night(JOINS)
    assert received(broker, 1) == stored(broker, 1)[:2]
    broker.log.time = ends_at + EVERY
    broker.log.append(2, queue_id=1)
    write(broker)
    if saved_after is not None:
        commit(broker, broker.log.time, q0=12, q1=8)
    assert broker.night([*JOINS, reads.replace(str(after(18)), str(ends_at + 1))]).code == 0
    times = stored(broker, 1)
    assert received(broker, 1) == [*times[:2], *((offset, ends_at + 1) for offset in range(2, 6)), *times[6:]]
    assert broker.passes_audits()


def test_in_a_replay_what_no_client_reads_is_pending(broker: GrowingBroker) -> None:
    store(broker)
    broker.night(JOINS)
    assert broker.run(replay, "--warehouse", broker.folder / "w", "--into", broker.folder / "replay").code == 0
    stats = rows_of(broker.folder / "replay", "delivery_stats")
    assert {row["queue_id"]: (row["delivered"], row["pending"]) for row in stats} == {0: (12, 0), 1: (0, 6)}


def test_a_reset_while_no_client_reads_the_queue(broker: GrowingBroker) -> None:
    store(broker)
    broker.log.append(2, queue_id=1)
    write(broker)
    reset = event(after(16), "reset_offset", "cg", queue_id=1, offset=4)
    assert broker.night([*JOINS, reset, SUBSCRIBES]).code == 0
    assert received(broker, 1) == [*stored(broker, 1)[:2], (4, after(18)), (5, after(18)), *stored(broker, 1)[6:]]


def test_the_last_client_that_subscribes_leaves_before_another_one_joins(broker: GrowingBroker) -> None:
    """For a while, the group has only a client that does not subscribe to the topic. No queue is read."""
    store(broker)
    broker.log.append(2, queue_id=1)
    write(broker)
    leaves = event(after(15), "unregister", "cg", client_id="c1").replace(', "topic": "T"', "")
    joins = heartbeat(after(18), "c3", T | {"sub_version": 8}), event(after(18) + 1, "unregister", "cg", client_id="c2")
    lines = [*JOINS, leaves, joins[0], joins[1].replace(', "topic": "T"', "")]
    assert broker.night(lines).code == 0
    assert [offset for offset, _ in received(broker, 0)] == list(range(12))
    times = stored(broker, 1)
    late = [(offset, after(18)) for offset in range(2, 6)]
    assert received(broker, 1) == [*times[:2], *late, *times[6:]]
