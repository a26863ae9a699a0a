"""Whole nights on stores of a real broker: every table agrees with the broker and its consumers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import advise, explain, lag, lint, nightly, pulls, replay, report, verify, what_if
from schemas.delta.warehouse import Warehouse
from tests.captures import DAMAGED, IN_DATABASES, MESSAGE_FIELDS, UNDAMAGED, capture, delivered_in_force, rows
from tests.nights.commands import Run, arguments, contents, outcomes, rows_of, without_runs
from tests.nights.damage import rewrite_ledger
from tests.reference import matches
from tests.replayed import Replayed


@pytest.mark.parametrize("name", UNDAMAGED)
def test_commitlog_holds_every_field_of_every_message(replayed: Replayed, name: str) -> None:
    made = {row["commitlog_offset"]: row for row in rows_of(replayed(name), "commitlog", *MESSAGE_FIELDS)}
    expected = {
        row["physicalOffset"]: {ours: row[theirs] for ours, theirs in MESSAGE_FIELDS.items()}
        for row in rows(name, "messages")
        if not row.get("blank")
    }
    assert made == expected
    assert not list(rows_of(replayed(name), "quarantine"))


@pytest.mark.parametrize("name", UNDAMAGED)
def test_consumequeue_is_the_brokers(replayed: Replayed, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = {
        (row["topic"], row["queue_id"], row["queue_offset"], row["commitlog_offset"], row["size"], row["tags_code"]): (
            row["filter_bit_map"] and row["filter_bit_map"].hex()
        )
        for row in rows_of(replayed(name), "consumequeue")
    }
    expected = {
        (e["topic"], e["queueId"], e["queueOffset"], e["commitLogOffset"], e["size"], e["tagsCode"]): (
            e["ext"]["bitMap"] if e.get("ext") else None
        )
        for e in rows(name, "consumequeue")
    }
    assert made == expected
    verify.main(["--warehouse", replayed(name).location, "--store", str(capture(name) / "store")])
    assert "identical: every consume queue and extension file" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*UNDAMAGED, *IN_DATABASES])
@pytest.mark.parametrize("with_file", [False, True])
def test_a_replay_gives_every_group_what_its_consumer_got(
    replayed: Replayed, name: str, with_file: bool, tmp_path: Path
) -> None:
    given = ["--warehouse", replayed(name).location, "--into", str(tmp_path / "replay")]
    if with_file:
        given += ["--subscriptions", str(capture(name) / "subscription_events.jsonl")]
    replay.main(given)
    made = outcomes(Warehouse.at(str(tmp_path / "replay")))
    expected_rows = delivered_in_force(name)
    assert len(expected_rows) == 53
    for expected in expected_rows:
        got = made.get((expected["group"], expected["topic"]), {"DELIVERED": [], "DROPPED_BY_CLIENT": []})
        assert sorted(got["DELIVERED"]) == sorted(map(tuple, expected["client"])), expected["group"]
        returned = sorted(got["DELIVERED"] + got["DROPPED_BY_CLIENT"])
        assert returned == sorted(map(tuple, expected["broker"])), expected["group"]


def test_a_replay_of_a_period_without_messages(replayed: Replayed, tmp_path: Path, run: Run) -> None:
    given = ("--warehouse", replayed("small").location, "--into", tmp_path / "replay")
    ended = run(replay, *given, "--from", "2100-01-01")
    remark, deliveries, _ = ended.out.splitlines()
    assert remark == "nothing to filter: no topic with a subscription has messages in this period"
    assert (ended.code, deliveries.split(";")[0]) == (0, "0 deliveries")


@pytest.mark.parametrize("name", UNDAMAGED)
def test_the_stats_of_a_replay_count_what_each_stage_passed(replayed: Replayed, name: str, tmp_path: Path) -> None:
    replay.main(["--warehouse", replayed(name).location, "--into", str(tmp_path / "replay")])
    stats = {
        (row["consumer_group"], row["topic"], row["queue_id"]): row
        for row in rows_of(tmp_path / "replay", "delivery_stats")
    }
    in_force = [(row["group"], row["topic"], row["mode"]) for row in delivered_in_force(name)]
    for expected in rows(name, "cqfilter"):
        if (expected["group"], expected["topic"], expected["mode"]) in in_force:
            for queue_id, queue in expected["queues"].items():
                row = stats[expected["group"], expected["topic"], int(queue_id)]
                counts = (row["scanned"], row["passed_stage1"], row["passed_stage2"])
                assert counts == (queue["scanned"], queue["cqPass"], queue["matched"]), (expected["group"], queue_id)
                assert row["hash_collisions"] == row["passed_stage2"] - row["delivered"]
                assert row["pending"] == 0


def test_a_replay_and_facts_are_kept_apart(replayed: Replayed, run: Callable[..., Any], tmp_path: Path) -> None:
    warehouse = replayed("small").location
    assert run(replay, "--warehouse", warehouse, "--into", tmp_path / "replay").code == 0
    assert run(replay, "--warehouse", warehouse, "--into", tmp_path / "replay").code == 0, "an older replay is replaced"
    assert run(replay, "--warehouse", warehouse, "--into", warehouse)[::2] == (
        2, "mqsieve: --into is the warehouse itself: give another folder\n",
    )  # fmt: skip
    shutil.copytree(warehouse, tmp_path / "copy")
    code, _, error = run(replay, "--warehouse", warehouse, "--into", tmp_path / "copy")
    assert (code, "holds nights, not a replay" in error) == (2, True)
    store = ("--store", capture("small") / "store")
    group = ("--group", "cg_sql_region_price", "--topic", "OrderEvents")
    for job, *more in (
        (what_if, *group, "--tags", "a"),
        (pulls, *group),
        (explain, "--message", "ord-370"),
        (lint,),
        (advise,),
        (verify, *store),
        (replay, "--into", tmp_path / "again"),
    ):
        code, _, error = run(job, "--warehouse", tmp_path / "replay", *more)
        assert (code, "holds a replay, which has no messages" in error) == (2, True), job
    assert run(report, "--warehouse", tmp_path / "replay", "--output", tmp_path / "page.html").code == 0
    code, _, error = run(nightly, *arguments("small", tmp_path / "replay"))
    assert (code, "holds a replay" in error) == (2, True)


def test_a_replay_after_the_clock_was_set_back(replayed: Replayed, run: Callable[..., Any], tmp_path: Path) -> None:
    given = "--warehouse", replayed("small").location, "--into", tmp_path / "replay"
    assert run(replay, *given).code == 0
    in_the_future = "2999-01-01T00:00:00.000Z"
    rewrite_ledger(
        Warehouse.at(str(tmp_path / "replay")), lambda entries: [replace(entry, run=in_the_future) for entry in entries]
    )
    assert run(replay, *given).code == 0
    assert run(lag, "--warehouse", tmp_path / "replay").code == 0
    assert max(row["run"] for row in rows_of(tmp_path / "replay", "run_ledger")) > in_the_future


def test_a_replay_of_a_part_and_of_other_subscriptions(replayed: Replayed, tmp_path: Path) -> None:
    subscriptions = tmp_path / "new.yaml"
    subscriptions.write_text("- {group: cg_new, topic: OrderEvents, sql: price > 50.0}\n", encoding="utf-8")
    messages = sorted(
        (row for row in rows("small", "messages") if row.get("topic") == "OrderEvents"),
        key=lambda row: row["storeTimestamp"],
    )
    times = [row["storeTimestamp"] for row in messages]
    begin, end = times[100], times[200]
    given = ["--subscriptions", str(subscriptions), "--from", str(begin), "--to", str(end)]
    replay.main(["--warehouse", replayed("small").location, "--into", str(tmp_path / "replay"), *given])
    got = {(row["consumer_group"], row["commitlog_offset"]) for row in rows_of(tmp_path / "replay", "deliveries")}
    with_entry = {entry["commitLogOffset"] for entry in rows("small", "consumequeue")}
    assert got == {
        ("cg_new", row["physicalOffset"])
        for row in messages
        if begin <= row["storeTimestamp"] < end
        and row["physicalOffset"] in with_entry
        and matches("price > 50.0", row["properties"])
    }
    ((as_of,),) = (row.values() for row in rows_of(tmp_path / "replay", "run_ledger", "as_of"))
    columns = ("consumer_group", "expression", "valid_from")
    (registered,) = (tuple(row[name] for name in columns) for row in rows_of(tmp_path / "replay", "subscriptions"))
    assert registered == ("cg_new", "price > 50.0", as_of + 1), "just after the last night"


def test_the_same_night_again_changes_no_table(replayed: Replayed, run: Callable[..., Any]) -> None:
    warehouse = replayed("small")
    before = contents(warehouse)
    versions = sorted(Path(warehouse.location).rglob("_delta_log/*.json"))
    code, out, _ = run(nightly, *arguments("small", warehouse.location))
    assert (code, "There was nothing new: no table changed" in out) == (0, True)
    assert sorted(Path(warehouse.location).rglob("_delta_log/*.json")) == versions
    assert contents(Warehouse.at(warehouse.location)) == before


def test_the_summary_says_why_there_are_fewer_entries_than_messages(run: Callable[..., Any], tmp_path: Path) -> None:
    lines = run(nightly, *arguments("small", tmp_path)).out.splitlines()
    at = next(i for i, line in enumerate(lines) if "743 in commitlog, 739 in consumequeue" in line)
    assert lines[at + 1] == "  4 prepared or rolled-back transaction messages have no entry in consumequeue"


@pytest.mark.parametrize(
    ("name", "kept", "would"),
    [
        ("small_torn", 730, "would end its log at offset 659,900"),
        ("small_truncated", 730, "would not start on this store"),
        ("small_corrupt", 743, "restarted after a crash, would end its log at offset 425,623"),
    ],
)
def test_damage_loses_nothing_that_can_be_decoded(
    run: Callable[..., Any], tmp_path: Path, name: str, kept: int, would: str
) -> None:
    assert name in DAMAGED
    code, out, _ = run(nightly, *arguments(name, tmp_path))
    assert code == 0
    assert len(list(rows_of(tmp_path, "commitlog"))) == kept
    quarantined = list(rows_of(tmp_path, "quarantine"))
    if name == "small_corrupt":
        assert quarantined == []
        assert "1 message whose body" in out
    else:
        assert [row["offset"] for row in quarantined] == [659900]
        log = (capture(name) / "store/commitlog/00000000000000655360").read_bytes()
        assert quarantined[0]["bytes"] == log[659900 - 655360 : 659900 - 655360 + len(quarantined[0]["bytes"])]
        assert "quarantined: 00000000000000655360, offset 659,900: " in out
    assert would in out


@pytest.mark.parametrize("name", DAMAGED)
def test_a_repaired_store_gives_the_tables_of_the_whole_one(replayed: Replayed, tmp_path: Path, name: str) -> None:
    nightly.main(arguments(name, tmp_path))
    nightly.main(arguments("small", tmp_path))
    tables, expected = without_runs(tmp_path), without_runs(replayed("small"))
    for table in ("commitlog", "consumequeue", "deliveries", "subscriptions", "quarantine"):
        assert tables[table] == expected[table], table
