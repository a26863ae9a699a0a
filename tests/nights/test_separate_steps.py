"""The steps of a night as jobs of their own tell what nightly tells."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from jobs import audit, deliver, dispatch, explain, export, ingest, maintain, nightly, register
from schemas.delta.warehouse import Warehouse
from tests.broker_log import SEGMENT, BrokerLog
from tests.captures import capture
from tests.nights.commands import NIGHTS, Ended, Run, differing, living, rows_of, without_runs
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"
ORDER: Sequence[ModuleType] = (ingest, dispatch, register, deliver)
"""dispatch does not know the subscriptions yet. Random nights try other orders."""


class Steps:
    """Runs the steps of the running broker's nights on one warehouse."""

    def __init__(self, run: Run, warehouse: Path) -> None:
        self.run = run
        self.warehouse = warehouse
        self._broker = capture("nights_dev")
        self._given = ("--warehouse", warehouse, "--broker-config", self._broker / "broker.conf")

    def step(self, job: ModuleType, night: int, *more: object) -> Ended:
        folder = self._broker / f"night_{night}"
        if job is ingest:
            more = ("--store", folder / "store", *more)
        if job is register:
            more = ("--subscriptions", folder / "subscription_events.jsonl", *more)
        ended = self.run(job, *self._given, *more)
        assert ended.code == 0, ended.error
        return ended

    def facts(self) -> dict[str, Counter[str]]:
        return facts(self.warehouse)


def facts(warehouse: Path) -> dict[str, Counter[str]]:
    return without_runs(Warehouse.at(str(warehouse)))


def test_steps_tell_what_nightly_tells(run: Run, nights: Path, tmp_path: Path) -> None:
    """deliver has no store: it uses the committed offsets that ingest read."""
    steps = Steps(run, tmp_path / "w")
    for night in NIGHTS:
        for job in ORDER:
            steps.step(job, night)
        assert differing(steps.facts(), facts(nights / str(night))) == []
    assert run(audit, "--warehouse", steps.warehouse, "--all").code == 0


def test_each_step_ends_with_the_export_of_what_it_wrote(run: Run, tmp_path: Path) -> None:
    steps = Steps(run, tmp_path / "w")
    for job in (ingest, register, dispatch, deliver):
        *_, line = steps.step(job, 1).out.splitlines()
        script, exporting, *given = shlex.split(line)
        exported = run(export, *(tmp_path / part if part.endswith(".jsonl") else part for part in given))
        assert (script, exporting, exported.code) == ("./spark-submit.sh", "export", 0), exported.error
        assert not exported.out.startswith("0 "), line


def test_nights_of_steps_can_be_repeated(run: Run, nights: Path, tmp_path: Path) -> None:
    steps = Steps(run, tmp_path / "w")
    for night in NIGHTS:
        for job in ORDER:
            steps.step(job, night)
    expected = facts(nights / str(NIGHTS[-1]))
    steps.step(register, NIGHTS[-1], "--redo-from", 0)
    assert differing(steps.facts(), expected) == []
    next((steps.warehouse / "delivery_blocks").rglob("*.parquet")).unlink()
    assert run(maintain, "--warehouse", steps.warehouse, "--rebuild").code == 0
    assert differing(steps.facts(), expected) == []


def test_a_redo_between_the_steps_keeps_what_is_prepared(run: Run, nights: Path, tmp_path: Path) -> None:
    steps = Steps(run, tmp_path / "w")
    assert run(nightly, *living(1, steps.warehouse)).code == 0
    steps.step(ingest, 2)
    steps.step(dispatch, 2)
    steps.step(register, 2, "--redo-from", 0)
    steps.step(dispatch, 2)
    steps.step(deliver, 2)
    assert differing(steps.facts(), facts(nights / "2")) == []


def test_a_redo_by_the_night_that_steps_prepared(run: Run, nights: Path, tmp_path: Path) -> None:
    """The offsets that ingest left for deliver go, though dispatch ran after it."""
    steps = Steps(run, tmp_path / "w")
    assert run(nightly, *living(1, steps.warehouse)).code == 0
    steps.step(ingest, 2)
    steps.step(dispatch, 2)
    assert run(nightly, *living(2, steps.warehouse, "--redo-from", 0)).code == 0
    assert differing(steps.facts(), facts(nights / "2")) == []


def test_a_night_does_what_steps_have_left(run: Run, nights: Path, tmp_path: Path) -> None:
    steps = Steps(run, tmp_path / "w")
    steps.step(ingest, 1)
    assert run(nightly, *living(1, steps.warehouse)).code == 0
    steps.step(register, 2)
    steps.step(ingest, 2)
    steps.step(dispatch, 2)
    assert run(nightly, *living(2, steps.warehouse)).code == 0
    assert differing(steps.facts(), facts(nights / "2")) == []


def test_a_list_after_ingest_names_what_it_names_to_nightly(run: Run, tmp_path: Path) -> None:
    """The offsets of the store show which groups read their retry topics."""
    broker = GrowingBroker(run, tmp_path)
    broker.log.append(2, topic="%RETRY%cg")
    broker.grow()
    (tmp_path / "store" / "config").mkdir()
    offsets = {"T@cg": {"0": 0}, "%RETRY%cg@cg": {"0": 0}}
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    broker.night("- {group: cg, topic: T, tag: '*', consume_from: first}", name="list.yaml")
    given = ("--warehouse", tmp_path / "steps", "--broker-config", tmp_path / "broker.conf")
    for job, *more in (
        (ingest, "--store", tmp_path / "store"), (register, "--subscriptions", tmp_path / "list.yaml"), (dispatch,),
        (deliver,),
    ):  # fmt: skip
        assert run(job, *given, *more).code == 0
    assert differing(facts(tmp_path / "steps"), facts(tmp_path / "w")) == []
    assert len(list(rows_of(tmp_path / "steps", "deliveries"))) == 12


def test_a_group_that_returns_gets_what_was_stored_while_it_was_away(run: Run, tmp_path: Path) -> None:
    """The messages have another run than their entries."""
    broker = GrowingBroker(run, tmp_path)
    given = ("--warehouse", tmp_path / "steps", "--broker-config", tmp_path / "broker.conf")
    events = [sql(BEFORE, "cg", EVERYTHING), sql(BEFORE, "stays", EVERYTHING)]
    for more in ([], [event(after(12), "unregister", "cg")], [], [sql(after(35), "cg", EVERYTHING)]):
        events += more
        broker.grow()
        broker.night(events)
        assert run(ingest, *given, "--store", tmp_path / "store").code == 0
        assert run(register, *given, "--subscriptions", tmp_path / "events.jsonl").code == 0
        assert run(dispatch, *given).code == 0
        assert run(deliver, *given).code == 0
    assert broker.received("cg") == broker.received("stays") == list(range(40))
    assert broker.facts("steps")["deliveries"] == broker.facts()["deliveries"]


def test_steps_with_other_switches_begin_with_register(run: Run, broker: GrowingBroker, tmp_path: Path) -> None:
    lines = [sql(BEFORE, "cg", "n IS NOT NULL")]
    broker.night(lines)
    (tmp_path / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=false\n")
    broker.grow()
    given = ("--warehouse", tmp_path / "w", "--broker-config", tmp_path / "broker.conf")
    store = ("--store", tmp_path / "store")
    refused = run(ingest, *given, *store)
    end = rows_of(tmp_path / "w", "run_ledger", "as_of")
    (as_of,) = {row["as_of"] for row in end}
    redo = f"--redo-from {as_of + 1} if they changed after the last night"
    assert (refused.code, "first run register with --redo-from 0" in refused.error, redo in refused.error) == (
        2,
        True,
        True,
    )
    since = ("--subscriptions", tmp_path / "events.jsonl", "--redo-from", as_of + 1)
    assert run(register, *given, *since).code == 0
    assert run(ingest, *given, *store).code == 0
    for job in (dispatch, deliver):
        assert run(job, *given).code == 0
    assert broker.received("cg") == list(range(10))


def test_offsets_that_two_snapshots_move_there_and_back(run: Run, broker: GrowingBroker, tmp_path: Path) -> None:
    events = [sql(BEFORE, "cg", "n IS NOT NULL"), event(after(8), "unregister", "cg")]
    broker.commit(broker.log.time, cg=5)
    broker.night(events)
    given = ("--warehouse", tmp_path / "w", "--broker-config", tmp_path / "broker.conf")
    for offset in (2, 5):
        broker.grow()
        broker.commit(broker.log.time, cg=offset)
        assert run(ingest, *given, "--store", tmp_path / "store").code == 0
    assert run(register, *given, "--subscriptions", tmp_path / "events.jsonl").code == 0
    for job in (dispatch, deliver):
        assert run(job, *given).code == 0
    (row,) = rows_of(tmp_path / "w", "current_offsets", "committed", "decided_to")
    assert (row["committed"], row["decided_to"]) == (5, 5)


def test_entries_that_no_night_has_filtered(run: Run, nights: Path, tmp_path: Path) -> None:
    steps = Steps(run, tmp_path / "w")
    assert run(nightly, *living(1, steps.warehouse)).code == 0
    steps.step(ingest, 2)
    steps.step(dispatch, 2)
    first, tables = facts(nights / "1"), steps.facts()
    assert differing(tables, {name: first[name] for name in ("deliveries", "current_offsets", "delivery_stats")}) == []
    assert len(tables["consumequeue"]) > len(first["consumequeue"])
    assert run(audit, "--warehouse", steps.warehouse, "--all").code == 0
    assert "There was nothing new" in run(dispatch, "--warehouse", steps.warehouse).out
    columns = ("commitlog_offset", "topic", "queue_id", "queue_offset")
    entries = [row for row in rows_of(steps.warehouse, "consumequeue", *columns) if row["topic"] == "OrderEvents"]
    last = max(entries, key=lambda row: row["commitlog_offset"])
    place = ("--topic", last["topic"], "--queue", last["queue_id"], "--offset", last["queue_offset"])
    answer = run(explain, "--warehouse", steps.warehouse, "--group", "cg_all_orders", *place).out
    assert "deliver has not run yet" in answer
    steps.step(deliver, 2)
    assert "There was nothing new" in run(deliver, "--warehouse", steps.warehouse).out


def test_the_first_message_that_no_night_has_filtered(broker: GrowingBroker, run: Run) -> None:
    broker.night([sql(BEFORE, "cg", EVERYTHING)])
    broker.grow()
    given = ("--warehouse", broker.folder / "w", "--broker-config", broker.folder / "broker.conf")
    assert run(ingest, *given, "--store", broker.folder / "store").code == 0
    assert run(dispatch, *given).code == 0
    place = ("--group", "cg", "--topic", "T", "--queue", 0, "--offset")
    answers = [run(explain, "--warehouse", broker.folder / "w", *place, offset).out for offset in (9, 10)]
    assert ["deliver has not run yet" in each for each in answers] == [False, True]


@pytest.mark.parametrize("is_first_night", [True, False])
def test_a_group_begins_in_queues_that_lost_messages_before_their_first_night(
    run: Run, broker: GrowingBroker, is_first_night: bool
) -> None:
    """Whether it began before the deletion is as uncertain as it is to nightly, though dispatch has found the queue."""
    broker.log = BrokerLog()
    store, steps = broker.folder / "store", broker.folder / "steps"
    start = event(after(345), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from="last")
    inputs = {ingest: ("--store", store), register: ("--subscriptions", broker.folder / "events.jsonl")}
    for topic, count, begin in (("U", 5, 0), ("T", 350, SEGMENT))[is_first_night:]:
        broker.log.append(count, topic=topic)
        broker.log.write(store, begin)
        broker.log.write_queues(store)
        assert broker.night([start]).code == 0
        for job in ORDER:
            given = ("--warehouse", steps, "--broker-config", broker.folder / "broker.conf", *inputs.get(job, ()))
            assert run(job, *given).code == 0
    assert sum(row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats")) > 9
    assert differing(facts(steps), facts(broker.folder / "w")) == []
