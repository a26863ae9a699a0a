"""Changes of the store, the disk, the clock or the warehouse while a night runs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs import deliver, dispatch, export, lag, maintain, nightly, pulls, replay, verify
from jobs.night import commit, night
from schemas.delta.table import DataFileWriter
from schemas.delta.warehouse import Warehouse
from tests.captures import capture
from tests.faults.kill import Nights, Order
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Run, arguments, as_nobody, one_line, open_to_all, without_runs


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Callable[[], object]) -> None:
    """Calls ``fault`` just before the first call of a function of the night."""
    function, faults = getattr(owner, name), [fault]

    def called(*given: Any, **named: Any) -> Any:
        while faults:
            faults.pop()()
        return function(*given, **named)

    monkeypatch.setattr(owner, name, called)


def test_a_segment_that_the_broker_deletes_during_the_read(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = broker.store(1) / "commitlog" / f"{0:020d}"
    content = segment.read_bytes()
    before(monkeypatch, night, "read_range", segment.unlink)
    ended = run(nightly, *broker.arguments(1))
    monkeypatch.undo()
    assert (ended.code, one_line(ended.error)) == (2, True)
    assert segment.name in ended.error
    segment.write_bytes(content)
    assert run(nightly, *broker.arguments(1)).code == 0
    broker.assert_same(without_runs(undisturbed.kept(1)))


@pytest.mark.parametrize("size", [0, 1_500])
def test_a_segment_that_shrinks_during_the_read(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """With a memory map, this would kill the process."""
    segment = broker.store(2) / "commitlog" / f"{0:020d}"
    content = segment.read_bytes()
    broker.start_from(undisturbed, 1)
    before(monkeypatch, night, "read_range", lambda: os.truncate(segment, size))
    ended = run(nightly, *broker.arguments(2))
    monkeypatch.undo()
    assert (ended.code, one_line(ended.error)) == (2, True)
    assert f"{segment.name} became shorter while it was read" in ended.error
    segment.write_bytes(content)
    assert run(nightly, *broker.arguments(2)).code == 0
    broker.assert_same(without_runs(undisturbed.kept(2)))


def test_the_clock_goes_back(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.start_from(undisturbed, 1)
    year_2020 = 1_577_836_800
    monkeypatch.setattr(time, "time_ns", lambda: year_2020 * 10**9)
    assert run(nightly, *broker.arguments(2)).code == 0
    broker.assert_same(without_runs(undisturbed.kept(2)))
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out


def test_two_processes_on_one_warehouse(
    nights: Nights, run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process begins while the first one writes."""
    others: list[Any] = []
    before(
        monkeypatch, DataFileWriter, "close", lambda: others.append(nights.run(Order(broker.arguments(1))))
    )  # fmt: skip
    assert run(nightly, *broker.arguments(1)).code == 0
    message = f"mqsieve: another run is writing to {broker.warehouse}: wait for it to end and try again\n"
    assert [(other.code, other.error) for other in others] == [(4, message)]
    broker.assert_same(without_runs(undisturbed.kept(1)))


@pytest.mark.parametrize("job", [maintain, dispatch, deliver], ids=lambda job: job.__name__)
def test_a_night_that_ends_just_before_another_job_locks_the_warehouse(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch, job: Any
) -> None:
    """The job has already read the ledger. It must not take the night for an unfinished run."""
    broker.start_from(undisturbed, 1)
    before(monkeypatch, Warehouse, "writing", lambda: nightly.main(broker.arguments(2)))
    ended = run(job, "--warehouse", broker.warehouse)
    monkeypatch.undo()
    assert ended.code == 0
    broker.assert_same(without_runs(undisturbed.kept(2)))


def test_a_first_night_that_ends_just_before_a_replay_locks_its_folder(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, Warehouse, "writing", lambda: nightly.main(broker.arguments(1)))
    ended = run(replay, "--warehouse", undisturbed.kept(2), "--into", broker.warehouse)
    monkeypatch.undo()
    assert (ended.code, "holds nights, not a replay" in ended.error) == (2, True)
    broker.assert_same(without_runs(undisturbed.kept(1)))


@pytest.mark.parametrize("name", ["commitlog", "current_offsets"])
def test_optimize_during_a_night(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each night replaces current_offsets, so both remove its file."""
    broker.start_from(undisturbed, 1)
    for _ in range(2):
        before(monkeypatch, commit.Changes, "commit", lambda: rewrite(broker.warehouse / name))
        ended = run(nightly, *broker.arguments(2))
        monkeypatch.undo()
        if ended.code == 4:
            assert f"another program changed {name} meanwhile: run the same command again" in ended.error
            ended = run(nightly, *broker.arguments(2))
        assert ended.code == 0, ended.error
        broker.assert_same(without_runs(undisturbed.kept(2)))
        broker.start_from(undisturbed, 1)


def rewrite(table: Path) -> None:
    """OPTIMIZE of a table with small files, which replaces each file."""
    opened = DeltaTable(str(table))
    opened.optimize.z_order([opened.schema().fields[1].name])
    assert opened.history(1)[0]["operation"] == "OPTIMIZE"


def test_vacuum_during_a_night(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VACUUM without a retention removes files that are not committed yet."""
    broker.start_from(undisturbed, 1)

    def vacuum() -> None:
        for table in ("commitlog", "delivery_blocks"):
            removed = DeltaTable(str(broker.warehouse / table)).vacuum(
                0, dry_run=False, enforce_retention_duration=False, full=True
            )
            assert removed

    before(monkeypatch, commit.Changes, "commit", vacuum)
    ended = run(nightly, *broker.arguments(2))
    monkeypatch.undo()
    assert (ended.code, one_line(ended.error)) == (4, True)
    assert "run the same command again" in ended.error
    assert run(nightly, *broker.arguments(2)).code == 0
    broker.assert_same(without_runs(undisturbed.kept(2)))


@pytest.mark.parametrize("hidden", ["commitlog", "commitlog/_delta_log", "run_ledger/_delta_log/*.json"])
def test_a_table_that_may_not_be_read_is_not_damaged(
    run: Run, undisturbed: FaultyBroker, tmp_path: Path, hidden: str
) -> None:
    open_to_all(tmp_path)
    warehouse = shutil.copytree(undisturbed.kept(1), tmp_path / "w")
    for path in warehouse.rglob("*"):
        path.chmod(0o777)
    paths = list(warehouse.glob(hidden))
    for path in paths:
        path.chmod(0)
    with as_nobody():
        ended = run(lag, "--warehouse", warehouse)
    for path in paths:
        path.chmod(0o777)
    assert (ended.code, ended.out, one_line(ended.error)) == (2, "", True)
    assert " cannot be read (Permission denied): check its permissions" in ended.error


def test_a_read_only_warehouse_is_read_and_not_written(
    run: Run, replayed: Callable[[str], Any], tmp_path: Path
) -> None:
    open_to_all(tmp_path)
    warehouse = tmp_path / "w"
    shutil.copytree(replayed("small").storage.root, warehouse)
    (warehouse / ".lock").unlink()
    for path in (warehouse, *warehouse.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    where = ("--warehouse", warehouse)
    # What is compiled is written where nobody may not write.
    run(verify, "--store", capture("small") / "store", *where)
    run(pulls, "--group", "cg_tag_orders_paid", "--topic", "OrderEvents", *where)
    with as_nobody():
        assert run(verify, "--store", capture("small") / "store", *where).code == 0
        pulled = run(pulls, "--group", "cg_tag_orders_paid", "--topic", "OrderEvents", *where)
        assert pulled.code == 0, pulled.error
        output = tmp_path / "out" / "deliveries.jsonl"
        assert run(export, "deliveries", "--output", output, *where).code == 0
        assert output.stat().st_size
        ended = run(nightly, *arguments("small", warehouse))
    assert (ended.code, ended.out, one_line(ended.error)) == (2, "", True)
    assert f"cannot write to {warehouse}" in ended.error
