"""Audits after nights that changed what earlier nights stored: they pass, and still find real faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from jobs import deliver, dispatch, ingest, maintain, register
from schemas.commitlog import COMMITLOG
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.tables import CONSUMEQUEUE, CONSUMER_OFFSETS, DELIVERY_STATS, QUEUE_PROGRESS
from tests.broker_log import BROKER_CONF, BrokerLog
from tests.nights.commands import rows_of
from tests.nights.damage import Change, one_row, rewrite
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, damage_magic, sql, write_damaged

EVENTS = [sql(BEFORE, "cg", "n IS NOT NULL")]


def recovered_range(broker: GrowingBroker) -> None:
    damage_magic(broker)
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    broker.grow()
    assert "1 damaged place of the log was repaired" in broker.night(EVENTS).out


def recovered_body(broker: GrowingBroker) -> None:
    """One of 200 bodies may be damaged."""
    whole = broker.log.append(1, body=b"right").append(190).data
    broker.log.data = whole.replace(b"right", b"wrong")
    broker.log.write(broker.folder / "store")
    broker.log.data = whole
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    broker.grow()
    assert "1 message with a damaged body has the right one now" in broker.night(EVENTS).out


def half_written(broker: GrowingBroker) -> None:
    whole = broker.log.data
    broker.log.data = whole[:-40]
    broker.log.write(broker.folder / "store")
    broker.log.data = whole
    broker.night(EVENTS)
    assert len(list(rows_of(broker.folder / "w", "quarantine"))) == 1
    assert broker.failed_audits() == []
    broker.grow()
    broker.night(EVENTS)


def corrected_line(broker: GrowingBroker) -> None:
    broker.night([*EVENTS, "garbage"])
    assert broker.failed_audits() == []
    broker.grow()
    broker.night(EVENTS)


def cut(broker: GrowingBroker) -> None:
    for _ in range(2):
        broker.night(EVENTS)
        broker.grow()
    assert broker.failed_audits() == []
    broker.log = BrokerLog().append(15).append(10, x="new")
    broker.log.write(broker.folder / "store")
    assert "the log differs from offset" in broker.night(EVENTS).out


def corrected_history(broker: GrowingBroker) -> None:
    for _ in range(2):
        broker.night(EVENTS)
        broker.grow()
    assert broker.failed_audits() == []
    events = [*EVENTS, sql(after(12), "cg", "n IN ('1','15')")]
    assert broker.night(events, "--redo-from", after(12)).code == 0


def steps(broker: GrowingBroker, *jobs: object) -> None:
    given = ("--warehouse", broker.folder / "w", "--broker-config", broker.folder / "broker.conf")
    inputs: dict[object, tuple[object, ...]] = {
        ingest: ("--store", broker.folder / "store"), register: ("--subscriptions", broker.folder / "events.jsonl"),
    }  # fmt: skip
    for job in jobs:
        assert broker.run(job, *given, *inputs.get(job, ())).code == 0


def repeated_steps(broker: GrowingBroker) -> None:
    broker.night(EVENTS)
    broker.grow()
    broker.commit(cg=12)
    steps(broker, ingest, register, dispatch, deliver)
    assert broker.failed_audits() == []
    broker.grow()
    assert broker.night(EVENTS, "--redo-from", after(15)).code == 0


def delivered_after_an_audit(broker: GrowingBroker) -> None:
    broker.night(EVENTS)
    broker.grow()
    broker.commit(cg=12)
    steps(broker, ingest, register, dispatch)
    assert broker.failed_audits() == []
    steps(broker, deliver)


def rebuild(broker: GrowingBroker) -> None:
    warehouse = broker.folder / "w"
    shutil.rmtree(warehouse / "queue_progress")
    assert broker.run(maintain, "--warehouse", warehouse, "--rebuild").code == 0


def rebuilt(broker: GrowingBroker) -> None:
    """The audited rows of consumequeue are lost and made again, those of the steps are not."""
    broker.night(EVENTS)
    broker.grow()
    broker.commit(cg=12)
    steps(broker, ingest, register, dispatch, deliver)
    broker.grow()
    broker.commit(cg=13)
    steps(broker, ingest, register, dispatch)
    assert broker.failed_audits() == []
    rebuild(broker)


def rebuilt_after_a_repair(broker: GrowingBroker) -> None:
    """The late message counts in the night of its place in the log now."""
    recovered_range(broker)
    broker.grow()
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    rebuild(broker)


def rebuilt_between_a_repair_and_its_night(broker: GrowingBroker) -> None:
    """No night has told the late message yet: the rebuild tells it in the night of its place in the log."""
    damage_magic(broker)
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    broker.grow()
    steps(broker, ingest, dispatch)
    rebuild(broker)


def rebuilt_after_a_repair_at_the_end_of_a_queue(broker: GrowingBroker) -> None:
    """The group came further in the night of the late message: to the end of a queue that had one message more."""
    broker.log = BrokerLog().append(3, queue_id=1)
    place = len(broker.log.data)
    broker.log.append(1, queue_id=1).append(6)
    write_damaged(broker, place + 4)
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    broker.grow()
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    rebuild(broker)


def repeated_by_another_broker(broker: GrowingBroker) -> None:
    """The other broker's nights are repeated, from before this one's on."""

    def night(name: str, *more: object) -> None:
        (broker.folder / "broker.conf").write_text(BROKER_CONF.replace("brokerName=b", f"brokerName={name}"))
        assert broker.night(EVENTS, *more).code == 0

    night("other")
    night("b")
    assert broker.failed_audits() == []
    night("other", "--redo-from", 0)
    broker.grow()
    night("b")


CHANGES = [
    recovered_range, recovered_body, half_written, corrected_line, cut, corrected_history, repeated_steps,
    delivered_after_an_audit, rebuilt, rebuilt_after_a_repair, rebuilt_between_a_repair_and_its_night,
    rebuilt_after_a_repair_at_the_end_of_a_queue, repeated_by_another_broker,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_audits_pass_after(broker: GrowingBroker, change: Callable[[GrowingBroker], None]) -> None:
    change(broker)
    assert broker.failed_audits() == []
    broker.grow()
    broker.night((broker.folder / "events.jsonl").read_text())
    assert broker.failed_audits() == []
    assert broker.failed_audits("--all") == []


TAMPERED: list[tuple[Callable[[GrowingBroker], None], Table, Change]] = [
    (recovered_range, COMMITLOG, one_row({"born_timestamp": 1})),
    (recovered_body, COMMITLOG, one_row({"born_timestamp": 1}, of=lambda row: row["queue_offset"] == 4)),
    (recovered_body, CONSUMEQUEUE, one_row({"store_timestamp": 1}, of=lambda row: row["queue_offset"] == 4)),
    (cut, COMMITLOG, one_row({"born_timestamp": 1}, of=lambda row: row["queue_offset"] == 14)),
    (cut, DELIVERY_STATS, one_row({"uncertain": 7})),
    (corrected_history, QUEUE_PROGRESS, one_row({"entries": 9})),
    (repeated_steps, DELIVERY_STATS, one_row({"uncertain": 7})),
    (rebuilt, DELIVERY_STATS, one_row({"uncertain": 7})),
    (rebuilt_after_a_repair, CONSUMEQUEUE, one_row({"store_timestamp": 1}, of=lambda row: row["queue_offset"] == 4)),
    (rebuilt_after_a_repair, CONSUMER_OFFSETS, one_row({"as_of": 1})),
    (repeated_by_another_broker, DELIVERY_STATS, one_row({"uncertain": 7})),
]


@pytest.mark.parametrize(("change", "table", "tampering"), TAMPERED)
def test_a_tampered_row_is_found_after(
    broker: GrowingBroker, change: Callable[[GrowingBroker], None], table: Table, tampering: Change
) -> None:
    change(broker)
    rewrite(Warehouse.at(str(broker.folder / "w")), table, tampering)
    assert "earlier_facts_unchanged" in broker.failed_audits()


def test_old_nights_with_unreadable_messages_are_removed(broker: GrowingBroker) -> None:
    """The quarantined bytes that explain the gap are removed, too."""
    place = len(broker.log.data) // 10 * 5
    whole = broker.log.append(200).data
    end = broker.log.segment
    broker.log.data = whole[:place] + b"damage" + whole[place + 6 : end]
    broker.log.write(broker.folder / "store")
    broker.night(EVENTS)
    broker.log.data = whole
    broker.grow()
    broker.log.write(broker.folder / "store", start=end)
    assert broker.night(EVENTS).code == 0
    assert broker.run(maintain, "--warehouse", broker.folder / "w", "--keep-days", 0).code == 0
    assert not list(rows_of(broker.folder / "w", "quarantine"))
    assert broker.failed_audits() == broker.failed_audits("--all") == []
