"""Audits after nights that changed what earlier nights stored: they pass, and still find real faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from jobs import audit, deliver, dispatch, ingest, maintain, register
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.queue_progress import QUEUE_PROGRESS
from tests.nights.commands import rows_of
from tests.nights.damage import Change, Row, rewrite
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, sql
from tests.nights.test_late_messages import damage_magic

EVENTS = [sql(BEFORE, "cg", "n IS NOT NULL")]


def failed(broker: GrowingBroker, *more: object) -> list[str]:
    """The names of the audits that fail with an error."""
    ended = broker.run(audit, "--warehouse", broker.folder / "w", "--json", *more)
    assert ended.code in (0, 3), ended.error
    rows = [json.loads(line) for line in ended.out.splitlines()]
    return [row["audit"] for row in rows if row["severity"] == "error" and row["cause"] is None]


def repaired(broker: GrowingBroker) -> None:
    damage_magic(broker)
    broker.night(EVENTS)
    assert failed(broker) == []
    broker.grow()
    assert "1 damaged places of the log were repaired" in broker.night(EVENTS).out


def mended(broker: GrowingBroker) -> None:
    """One of 200 bodies may be damaged."""
    whole = broker.log.append(1, body=b"right").append(190).data
    broker.log.data = whole.replace(b"right", b"wrong")
    broker.log.write(broker.folder / "store")
    broker.log.data = whole
    broker.night(EVENTS)
    assert failed(broker) == []
    broker.grow()
    assert "1 messages with a damaged body have the right one now" in broker.night(EVENTS).out


def half_written(broker: GrowingBroker) -> None:
    whole = broker.log.data
    broker.log.data = whole[:-40]
    broker.log.write(broker.folder / "store")
    broker.log.data = whole
    broker.night(EVENTS)
    assert len(list(rows_of(broker.folder / "w", "quarantine"))) == 1
    assert failed(broker) == []
    broker.grow()
    broker.night(EVENTS)


def corrected_line(broker: GrowingBroker) -> None:
    broker.night([*EVENTS, "garbage"])
    assert failed(broker) == []
    broker.grow()
    broker.night(EVENTS)


def cut(broker: GrowingBroker) -> None:
    for _ in range(2):
        broker.night(EVENTS)
        broker.grow()
    assert failed(broker) == []
    broker.log.data = broker.log.data[: len(broker.log.data) // 30 * 15]
    del broker.log.queues["T", 0][15:]
    broker.log.time -= 15_000
    broker.log.append(10, x="new")
    broker.log.write(broker.folder / "store")
    assert "cut" in broker.night(EVENTS).out


def corrected_history(broker: GrowingBroker) -> None:
    for _ in range(2):
        broker.night(EVENTS)
        broker.grow()
    assert failed(broker) == []
    events = [*EVENTS, sql(after(12), "cg", "n IN ('1','15')")]
    assert broker.night(events, "--redo-from", after(12)).code == 0


def steps(broker: GrowingBroker, *jobs: object) -> None:
    given = ("--warehouse", broker.folder / "w", "--broker-config", broker.folder / "broker.conf")
    inputs = {
        ingest: ("--store", broker.folder / "store"), register: ("--subscriptions", broker.folder / "events.jsonl"),
    }  # fmt: skip
    for job in jobs:
        assert broker.run(job, *given, *inputs.get(job, ())).code == 0


def offsets(broker: GrowingBroker, committed: int) -> None:
    config = broker.folder / "store" / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@cg": {"0": committed}}}))


def repeated_steps(broker: GrowingBroker) -> None:
    broker.night(EVENTS)
    broker.grow()
    offsets(broker, 12)
    steps(broker, ingest, register, dispatch, deliver)
    assert failed(broker) == []
    broker.grow()
    assert broker.night(EVENTS, "--redo-from", after(15)).code == 0


def delivered_after_an_audit(broker: GrowingBroker) -> None:
    broker.night(EVENTS)
    broker.grow()
    offsets(broker, 12)
    steps(broker, ingest, register, dispatch)
    assert failed(broker) == []
    steps(broker, deliver)


def rebuilt(broker: GrowingBroker) -> None:
    """The audited rows of consumequeue are lost and made again, those of the steps are not."""
    broker.night(EVENTS)
    broker.grow()
    offsets(broker, 12)
    steps(broker, ingest, register, dispatch, deliver)
    broker.grow()
    offsets(broker, 13)
    steps(broker, ingest, register, dispatch)
    assert failed(broker) == []
    warehouse = broker.folder / "w"
    shutil.rmtree(warehouse / "queue_progress")
    assert broker.run(maintain, "--warehouse", warehouse, "--rebuild").code == 0


CHANGES = [
    repaired, mended, half_written, corrected_line, cut, corrected_history, repeated_steps, delivered_after_an_audit,
    rebuilt,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_audits_pass_after(broker: GrowingBroker, change: Callable[[GrowingBroker], None]) -> None:
    change(broker)
    assert failed(broker) == []
    broker.grow()
    broker.night((broker.folder / "events.jsonl").read_text())
    assert failed(broker) == []
    assert failed(broker, "--all") == []


def one_row(values: Row, *, of: Callable[[Row], bool] = lambda row: True) -> Change:
    """Changes the oldest row for which a condition holds."""

    def change(rows: list[Row]) -> list[Row]:
        oldest = min((row for row in rows if of(row)), key=lambda row: str(row["run"]))
        return [row | values if row is oldest else row for row in rows]

    return change


TAMPERED: list[tuple[Callable[[GrowingBroker], None], Table, Change]] = [
    (repaired, COMMITLOG, one_row({"born_timestamp": 1})),
    (mended, COMMITLOG, one_row({"born_timestamp": 1}, of=lambda row: row["queue_offset"] == 4)),
    (mended, CONSUMEQUEUE, one_row({"store_timestamp": 1}, of=lambda row: row["queue_offset"] == 4)),
    (cut, COMMITLOG, one_row({"born_timestamp": 1}, of=lambda row: row["queue_offset"] == 14)),
    (cut, DELIVERY_STATS, one_row({"uncertain": 7})),
    (corrected_history, QUEUE_PROGRESS, one_row({"entries": 9})),
    (repeated_steps, DELIVERY_STATS, one_row({"uncertain": 7})),
    (rebuilt, DELIVERY_STATS, one_row({"uncertain": 7})),
]


@pytest.mark.parametrize(("change", "table", "tampering"), TAMPERED)
def test_a_tampered_row_is_found_after(
    broker: GrowingBroker, change: Callable[[GrowingBroker], None], table: Table, tampering: Change
) -> None:
    change(broker)
    rewrite(Warehouse.at(str(broker.folder / "w")), table, tampering)
    assert "earlier_facts_unchanged" in failed(broker)


def recreated(broker: GrowingBroker) -> None:
    """The topic is deleted and created again in the second night, after five more messages."""
    broker.night(EVENTS)
    assert failed(broker) == []
    broker.log.append(5)
    broker.log.queues.clear()
    broker.grow()
    broker.night(EVENTS)


def test_a_topic_that_was_created_again_has_no_duplicates(broker: GrowingBroker) -> None:
    recreated(broker)
    for _ in range(2):
        assert failed(broker) == []
        assert failed(broker, "--all") == []
        broker.grow()
        broker.night(EVENTS)


def in_new_queue(queue_offset: int) -> Callable[[Row], bool]:
    return lambda row: row["queue_offset"] == queue_offset and row["commitlog_offset"] > 1500


@pytest.mark.parametrize(
    ("fault", "audits"),
    [
        (one_row({"queue_offset": 3}, of=in_new_queue(7)), {"no_duplicates", "offsets_dense"}),
        (lambda rows: [*rows, next(filter(in_new_queue(0), rows))], {"no_duplicates", "nights_follow_each_other"}),
        (lambda rows: [row for row in rows if not in_new_queue(4)(row)], {"messages_have_entries"}),
    ],
)
def test_faults_in_a_topic_that_was_created_again(broker: GrowingBroker, fault: Change, audits: set[str]) -> None:
    recreated(broker)
    rewrite(Warehouse.at(str(broker.folder / "w")), CONSUMEQUEUE, fault)
    assert audits <= set(failed(broker))


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
    assert failed(broker) == failed(broker, "--all") == []
