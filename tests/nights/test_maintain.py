"""Maintenance removes old files and rows and rebuilds damaged tables, and the next night runs as usual."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from filtering.time_spans import DAY
from jobs import (
    advise,
    audit,
    deliver,
    dispatch,
    explain,
    export,
    inconsistency,
    ingest,
    lag,
    lint,
    maintain,
    nightly,
    pulls,
    register,
    report,
    what_if,
)  # fmt: skip
from schemas.delta.table import LAYOUT, UPGRADED_LAYOUT
from schemas.delta.warehouse import Warehouse
from schemas.tables import REBUILT_TABLES, TABLES
from tests.broker_log import SEGMENT, BrokerLog
from tests.nights.commands import Ended, Run, contents, differing, living, night, rows_of, without_runs
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql


@pytest.fixture
def copied(four_nights: Path, tmp_path: Path) -> Path:
    return shutil.copytree(four_nights, tmp_path / "w")


def delete_table(folder: Path) -> None:
    shutil.rmtree(folder)


def delete_file(folder: Path) -> None:
    Path(max(DeltaTable(str(folder)).file_uris())).unlink()


def delete_last_commit(folder: Path) -> None:
    max((folder / "_delta_log").glob("*.json")).unlink()


def empty_last_commit(folder: Path) -> None:
    max((folder / "_delta_log").glob("*.json")).write_bytes(b"")


def fill_last_commit_with_noise(folder: Path) -> None:
    max((folder / "_delta_log").glob("*.json")).write_bytes(b"\xff\x00 noise")


DAMAGES = (delete_table, delete_file, delete_last_commit, empty_last_commit, fill_last_commit_with_noise)


@pytest.mark.parametrize("table", [table.name for table in REBUILT_TABLES])
def test_a_table_that_was_deleted_is_made_again(run: Run, copied: Path, four_nights: Path, table: str) -> None:
    delete_table(copied / table)
    assert_mended(run, copied, four_nights, table)


@pytest.mark.parametrize("damage", DAMAGES[1:], ids=lambda each: each.__name__)
def test_a_damaged_table_is_made_again(
    run: Run, copied: Path, four_nights: Path, damage: Callable[[Path], None]
) -> None:
    damage(copied / "delivery_blocks")
    assert_mended(run, copied, four_nights, "delivery_blocks")


def assert_mended(run: Run, folder: Path, undamaged: Path, table: str) -> None:
    refused = run(nightly, *living(4, folder))
    assert refused.code == 2
    assert f"./spark-submit.sh maintain --rebuild --warehouse {folder} rebuilds it" in refused.error
    ended = run(maintain, "--rebuild", "--warehouse", folder)
    assert (ended.code, ended.error) == (0, "")
    assert table in ended.out
    assert differing(contents(folder), contents(undamaged)) == []
    assert "There was nothing new" in run(nightly, *living(4, folder)).out
    assert "no table is damaged" in run(maintain, "--rebuild", "--warehouse", folder).out


def test_nights_go_on_after_a_table_was_made_again(run: Run, four_nights: Path, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        nightly.main(living(number, tmp_path / "w"))
    delete_table(tmp_path / "w" / "current_offsets")
    assert run(maintain, "--rebuild", "--warehouse", tmp_path / "w").code == 0
    assert run(nightly, *living(4, tmp_path / "w")).code == 0
    runs = frozenset({"run"})
    assert differing(contents(tmp_path / "w", runs), contents(four_nights, runs)) == []


def test_a_rebuild_between_the_steps_of_a_night_keeps_the_offsets_of_its_snapshot(
    run: Run, tmp_path: Path, broker: GrowingBroker
) -> None:
    events = [sql(BEFORE, "cg", "n IS NOT NULL"), event(after(6), "unregister", "cg")]
    broker.night(events)
    broker.grow()
    offsets = {"offsetTable": {"T@cg": {"0": 2}}, "dataVersion": {"timestamp": broker.log.time}}
    (tmp_path / "store" / "config").mkdir()
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    given = ("--warehouse", tmp_path / "w", "--broker-config", tmp_path / "broker.conf")
    assert run(ingest, *given, "--store", tmp_path / "store").code == 0
    shutil.copytree(tmp_path / "w", tmp_path / "undisturbed")
    delete_table(tmp_path / "w" / "consumequeue")
    assert run(maintain, "--rebuild", "--warehouse", tmp_path / "w").code == 0
    for folder in ("w", "undisturbed"):
        for job in (dispatch, deliver):
            assert run(job, "--warehouse", tmp_path / folder, "--broker-config", tmp_path / "broker.conf").code == 0
    assert broker.facts() == broker.facts("undisturbed")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "table", [*sorted({table.name for table in TABLES} - {table.name for table in REBUILT_TABLES}), "run_ledger"]
)
def test_what_cannot_be_mended_says_how_to_start_again(
    run: Run, copied: Path, table: str, damage: Callable[[Path], None]
) -> None:
    if damage is delete_file and not DeltaTable(str(copied / table)).file_uris():
        pytest.skip("the table has no file")
    if table == "run_ledger" and damage in (delete_last_commit, empty_last_commit):
        pytest.skip("the last run was not finished: the next one undoes it")
    damage(copied / table)
    for ended in (run(maintain, "--rebuild", "--warehouse", copied), run(nightly, *living(4, copied))):
        assert (ended.code, ended.error.count("\n")) == (2, 1), ended
        assert "give another --warehouse and run nightly on the store again" in ended.error


def test_old_files_go_and_young_ones_stay(run: Run, copied: Path, four_nights: Path) -> None:
    old, young = copied / "commitlog" / "old.parquet", copied / "commitlog" / "young.parquet"
    for file in (old, young):
        file.write_bytes(b"of a run that died")
    eight_days_ago = time.time() - 8 * 86_400
    os.utime(old, (eight_days_ago, eight_days_ago))
    ended = run(maintain, "--warehouse", copied)
    assert (ended.code, ended.out) == (0, "1 old file deleted, of 1 table\n")
    assert not old.exists()
    assert young.exists()
    assert differing(contents(copied), contents(four_nights)) == []
    assert "There was nothing new" in run(nightly, *living(4, copied)).out


def test_a_run_that_died_after_maintenance_is_undone(run: Run, copied: Path, four_nights: Path, tmp_path: Path) -> None:
    assert run(maintain, "--warehouse", copied).code == 0
    shutil.copytree(copied / "run_ledger", tmp_path / "ledger")
    assert run(nightly, *living(4, copied), "--redo-from", "0").code == 0
    shutil.rmtree(copied / "run_ledger")
    shutil.copytree(tmp_path / "ledger", copied / "run_ledger")
    assert "There was nothing new" in run(nightly, *living(4, copied)).out
    assert differing(contents(copied), contents(four_nights)) == []


class Shop:
    """A broker with one night a day, whose log keeps two days."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self.folder = folder
        self.log = BrokerLog()
        (folder / "events.yaml").write_text("- {group: cg, topic: T, tag: '*', at: 1}\n")
        (folder / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=true\n")
        self.starts = [0]

    def night(self, *more: object) -> Ended:
        """Fills a segment, and runs a night."""
        while len(self.log.data) < SEGMENT * len(self.starts) - 500:
            self.log.append(body=b"b" * 1000)
        self.log.time += DAY
        self.starts.append(SEGMENT * len(self.starts))
        return self.run(*more)

    def run(self, *more: object) -> Ended:
        store = self.log.write(self.folder / "store", start=self.starts[max(0, len(self.starts) - 3)])
        return self._run(
            nightly, *night(self.folder / "w", store, self.folder / "events.yaml", self.folder / "broker.conf"), *more
        )

    def maintain(self, *more: object) -> Ended:
        return self._run(maintain, "--warehouse", self.folder / "w", *more)

    def rows(self, table: str) -> list[dict[str, object]]:
        return list(rows_of(self.folder / "w", table))


@pytest.fixture
def shop(run: Run, tmp_path: Path) -> Shop:
    shop = Shop(run, tmp_path)
    for _ in range(5):
        assert shop.night().code == 0
    return shop


def test_bodies_of_old_nights_go_and_their_checksums_stay(shop: Shop) -> None:
    before = shop.rows("commitlog")
    ended = shop.maintain("--keep-bodies", 1)
    assert (ended.code, ended.error) == (0, "")
    after = shop.rows("commitlog")
    gone = sum(row["body"] is None for row in after)
    assert 0 < gone < len(before)
    assert f"b: {gone} bodies of nights older than 1 day removed" in ended.out
    assert [row | {"body": None} for row in after] == [row | {"body": None} for row in before]
    assert {row["body"] for row in after} == {None, b"b" * 1000}
    assert "b: 0 bodies" in shop.maintain("--keep-bodies", 1).out
    assert "There was nothing new" in shop.run().out
    assert shop.night().code == 0
    assert len(shop.rows("deliveries")) == len(shop.rows("commitlog")) > len(before)


@pytest.mark.parametrize(
    "options", [(), ("--keep-bodies", 1), ("--keep-days", 0), ("--keep-days", 0, "--keep-bodies", 1), ("--rebuild",)]
)
def test_a_dry_run_changes_nothing_and_says_what_would_be_removed(shop: Shop, options: tuple[object, ...]) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (shop.folder / "w").rglob("*") if path.is_file()}

    before = files()
    ended = shop.maintain(*options, "--dry-run")
    assert (ended.code, files() == before) == (0, True)
    done = shop.maintain(*options).out
    assert [line for line in ended.out.splitlines() if "--dry-run" not in line] == [
        line.replace(" removed", " would be removed").replace(" deleted", " would be deleted")
        for line in done.splitlines()
    ]


def test_old_nights_go_but_for_those_that_the_broker_still_has(shop: Shop) -> None:
    before = shop.rows("commitlog")
    ended = shop.maintain("--keep-days", 0)
    assert (ended.code, ended.error) == (0, "")
    assert "b: 2 older nights are kept: the broker still has messages of them" in ended.out
    after = shop.rows("commitlog")
    start = shop.starts[-3]
    gone = [int(str(row["commitlog_offset"])) for row in before if row not in after]
    assert 0 < len(gone) == len(before) - len(after)
    assert max(gone) < start
    for table in ("consumequeue", "deliveries"):
        assert {row["commitlog_offset"] for row in shop.rows(table)} == {row["commitlog_offset"] for row in after}
    assert "There was nothing new" in shop.run().out
    assert shop.night().code == 0
    assert len(shop.rows("deliveries")) == len(shop.rows("commitlog")) > len(after)


@pytest.mark.parametrize("option", ["--keep-bodies", "--keep-days"])
def test_what_steps_prepared_is_as_old_as_the_night_that_they_prepared(run: Run, tmp_path: Path, option: str) -> None:
    shop, where = Shop(run, tmp_path), ("--warehouse", tmp_path / "steps")
    given = (*where, "--broker-config", tmp_path / "broker.conf")
    for _ in range(3):
        assert shop.night().code == 0
        ends = [
            shop.maintain(option, 0),
            run(ingest, *given, "--store", tmp_path / "store"),
            run(maintain, *where, option, 0),
            run(register, *given, "--subscriptions", tmp_path / "events.yaml"),
            run(dispatch, *given),
            run(deliver, *given),
            run(maintain, *where, option, 0),
        ]
        assert [ended.code for ended in ends] == [0] * len(ends), ends
        assert differing(without_runs(tmp_path / "steps"), without_runs(tmp_path / "w")) == []
        assert ends[0].out.splitlines()[1:-1] == ends[-1].out.splitlines()[1:-1]  # the older nights that are kept


def test_nights_whose_messages_are_gone_cannot_be_redone(shop: Shop) -> None:
    assert shop.maintain("--keep-days", 0).code == 0
    refused = shop.run("--redo-from", 0)
    assert (refused.code, refused.error.count("\n")) == (2, 1)
    least = int(refused.error.split("give --redo-from ")[1].split()[0])
    deliveries = contents(shop.folder / "w")["deliveries"]
    assert shop.run("--redo-from", least).code == 0
    assert contents(shop.folder / "w")["deliveries"] == deliveries
    delete_table(shop.folder / "w" / "queue_progress")
    ended = shop.maintain("--rebuild")
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert "read messages that were removed since" in ended.error


def test_every_question_has_an_answer_when_all_messages_of_a_topic_are_gone(run: Run, tmp_path: Path) -> None:
    shop = Shop(run, tmp_path)
    (tmp_path / "events.yaml").write_text(
        "- {group: cg, topic: T, tag: '*', at: 1}\n- {group: old, topic: Old, sql: price > 5.5, at: 1}\n"
    )
    shop.log.append(3, "Old")
    for _ in range(5):
        shop.night()
    assert shop.maintain("--keep-days", 0).code == 0
    assert {row["topic"] for row in shop.rows("commitlog")} == {"T"}
    group = ("--group", "old", "--topic", "Old")
    for job, *more in (
        (advise,),
        (lag,),
        (lint,),
        (inconsistency,),
        (report, "--output", tmp_path / "page.html"),
        (audit,),
        (what_if, *group, "--tags", "b"),
        (pulls, *group),
        (export, "deliveries", "--output", tmp_path / "d"),
    ):
        ended = run(job, "--warehouse", tmp_path / "w", *more)
        assert (ended.code, ended.error.count("failed")) == (0, 0), (job, ended.error)
        assert "no message has price" not in ended.out, job
    ended = run(explain, "--warehouse", tmp_path / "w", "--topic", "Old", "--queue", 0, "--offset", 0)
    assert (ended.code, "no message at Old 0/0" in ended.error) == (2, True)


def test_audits_pass_before_and_after_maintenance(shop: Shop, run: Run) -> None:
    given = ("--warehouse", shop.folder / "w")
    assert run(audit, *given).code == 0
    assert shop.maintain("--keep-days", 1, "--keep-bodies", 0).code == 0
    for more in ((), ("--all",)):
        ended = run(audit, *given, *more)
        assert (ended.code, ended.error) == (0, "")
    assert shop.night().code == 0
    assert run(audit, *given).code == 0
    assert shop.rows("quality_results")


def test_audits_pass_after_a_rebuild(run: Run, copied: Path) -> None:
    assert run(audit, "--warehouse", copied).code == 0
    delete_table(copied / "delivery_stats")
    assert run(maintain, "--rebuild", "--warehouse", copied).code == 0
    ended = run(audit, "--warehouse", copied, "--all")
    assert (ended.code, ended.error) == (0, "")


def test_days_that_are_all_kept(shop: Shop) -> None:
    before = contents(shop.folder / "w")
    assert "b: 0 rows of nights older than 30 days removed" in shop.maintain("--keep-days", 30).out
    assert differing(contents(shop.folder / "w"), before) == []


@pytest.mark.parametrize(
    ("layout", "writer"), [(LAYOUT + 1, "a newer mqsieve"), (UPGRADED_LAYOUT - 1, "an older mqsieve")]
)
@pytest.mark.parametrize("table", ["run_ledger", "consumequeue"])
def test_tables_of_another_layout_are_refused(run: Run, copied: Path, layout: int, writer: str, table: str) -> None:
    description = Warehouse.at(str(copied)).log(TABLES[1]).table.comment
    DeltaTable(str(copied / table)).alter.set_table_description(f"{description} (mqsieve layout {layout})")
    for ended in (run(nightly, *living(4, copied)), run(maintain, "--warehouse", copied)):
        assert (ended.code, ended.error.count("\n")) == (2, 1)
        assert f"was written by {writer} (layout {layout}): " in ended.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--keep-days", "-1"), "not a number of days"),
        (("--rebuild", "--keep-days", "1"), "--rebuild takes no --keep-days"),
        (("--broker", "nobody"), "the warehouse has no broker nobody"),
    ],
)
def test_usage(run: Run, copied: Path, arguments: tuple[str, ...], message: str) -> None:
    ended = run(maintain, "--warehouse", copied, *arguments)
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert message in ended.error
