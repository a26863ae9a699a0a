"""Exports of a selection."""

from __future__ import annotations

import csv
import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answers.export import EXPORTED, MISSED, Selection, batches_of, schema_of
from answers.facts import open_facts
from filtering.counted import counted
from jobs import export, ingest, nightly, pulls
from jobs.cli.batch_writers import write_batches
from schemas.deliveries import DELIVERIES
from schemas.delta.warehouse import Warehouse
from tests.broker_log import BrokerLog
from tests.captures import capture
from tests.nights.commands import Run
from tests.nights.missed_rows import assert_said_alike
from tests.replayed import Replayed


def test_an_unknown_group_is_refused_with_the_nearest_one(replayed: Replayed, run: Run) -> None:
    selection = ("--group", "cg_sql_region_prize", "--output", "-", "--warehouse", replayed("small").location)
    ended = run(export, "deliveries", *selection)
    assert (ended.code, ended.out) == (2, "")
    assert ended.error.endswith("; did you mean cg_sql_region_price?\n")


@pytest.mark.parametrize(("topic", "rows"), [("OrderEvents", 21), ("TagLab", 0)])
def test_csv_has_its_titles_whatever_was_selected(replayed: Replayed, run: Run, topic: str, rows: int) -> None:
    selection = ("--group", "cg_sql_region_price", "--topic", topic, "--columns", "topic,queue_id", "--format", "csv")
    ended = run(export, "deliveries", *selection, "--output", "-", "--warehouse", replayed("small").location)
    lines = ended.out.splitlines()
    assert (ended.code, lines[0], len(lines) - 1) == (0, "topic,queue_id", rows)
    assert ended.error == f"deliveries: {rows} rows to stdout\n"


def test_an_unknown_broker_is_refused(replayed: Replayed, run: Run, tmp_path: Path) -> None:
    given = ("deliveries", "--broker", "nosuch", "--output", tmp_path / "d.jsonl")
    ended = run(export, *given, "--warehouse", replayed("small").location)
    assert (ended.code, ended.error) == (2, "mqsieve: the warehouse has no broker nosuch; it holds broker-a\n")
    assert not (tmp_path / "d.jsonl").exists()


@pytest.mark.parametrize("others", [(), ("--topic", "TagLab")], ids=["alone", "beside a known one"])
def test_an_unknown_topic_is_refused_with_the_nearest_one(
    replayed: Replayed, run: Run, tmp_path: Path, others: tuple[str, ...]
) -> None:
    topics = (*others, "--topic", "OrderEvent")
    given = (*topics, "--output", tmp_path / "d.jsonl", "--warehouse", replayed("small").location)
    ended = run(export, "commitlog", *given)
    assert (ended.code, ended.out) == (2, "")
    assert ended.error.endswith("; did you mean OrderEvents?\n")
    assert not (tmp_path / "d.jsonl").exists()


def test_a_topic_of_messages_without_entries_is_known(run: Run, tmp_path: Path) -> None:
    warehouse = ("--warehouse", tmp_path / "w")
    assert run(ingest, "--store", capture("small") / "store", *warehouse).code == 0
    topics = ("--topic", "OrderEvents", "--topic", "TagLab")
    ended = run(export, "commitlog", *topics, "--columns", "topic", "--output", "-", *warehouse)
    assert (ended.code, ended.error) == (0, "commitlog: 495 rows to stdout\n")


@pytest.mark.parametrize(("name", "begins"), [("d.CSV", b"consumer_group,"), ("d.parquet", b"PAR1"), ("d", b"{")])
def test_the_extension_decides_the_format(
    replayed: Replayed, run: Run, tmp_path: Path, name: str, begins: bytes
) -> None:
    warehouse = ("--warehouse", replayed("small").location)
    assert run(export, "deliveries", "--output", tmp_path / name, *warehouse).code == 0
    assert (tmp_path / name).read_bytes().startswith(begins)
    code, _, error = run(export, "deliveries", "--output", tmp_path / "d.xyz", *warehouse)
    assert (code, "give one of .jsonl, .csv, .parquet, or --format" in error) == (2, True)
    assert not (tmp_path / "d.xyz").exists()
    assert run(export, "deliveries", "--format", "csv", "--output", tmp_path / "d.xyz", *warehouse).code == 0


@pytest.mark.parametrize("columns", ["", ",", "run,topic,run"])
def test_columns_that_are_none_or_repeated(replayed: Replayed, run: Run, columns: str) -> None:
    given = ("--output", "-", "--warehouse", replayed("small").location, "--columns", columns)
    ended = run(export, "commitlog", *given)
    assert (ended.code, ended.out) == (2, "")
    assert f"{columns!r} is not a list of different columns, such as topic,queue_id" in ended.error


@pytest.mark.parametrize("output", ["", ".", "..", "/"])
def test_an_output_that_is_a_folder(replayed: Replayed, run: Run, output: str) -> None:
    ended = run(export, "commitlog", "--output", output, "--warehouse", replayed("small").location)
    assert (ended.code, ended.error) == (2, f"mqsieve: {output or '.'} is a folder: give a file\n")


def test_a_link_a_pipe_and_a_device_stay(replayed: Replayed, run: Run, tmp_path: Path) -> None:
    given = ("quarantine", "--format", "csv", "--warehouse", replayed("small").location, "--output")
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for output in (tmp_path / "link", tmp_path / "pipe", Path(os.devnull)):
        assert run(export, *given, output).code == 0
    titles = (tmp_path / "file").read_bytes()
    assert titles.startswith(b"broker_name,")
    assert os.read(reader, 1 << 16) == titles
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "pipe").is_fifo()
    assert Path(os.devnull).is_char_device()
    os.close(reader)


def test_a_misspelt_topic_of_pulls(replayed: Replayed, run: Run) -> None:
    warehouse = ("--warehouse", replayed("small").location)
    ended = run(pulls, "--group", "cg_sql_region_price", "--topic", "OrderEvent", *warehouse)
    assert (ended.code, ended.error) == (
        2, "mqsieve: cg_sql_region_price has no subscription to OrderEvent; did you mean OrderEvents?\n",
    )  # fmt: skip


@pytest.mark.parametrize("table", sorted({*export.NAMES} - {"run_ledger", "quality_results", "missed"}))
def test_an_export_without_rows_has_the_columns_of_one_with_rows(
    replayed: Replayed, run: Run, tmp_path: Path, table: str
) -> None:
    given = (table, "--warehouse", replayed("small").location, "--format", "parquet", "--output")
    assert run(export, *given, tmp_path / "all.parquet").code == 0
    nothing = batches_of(replayed("small"), table, Selection("nobody"))
    with (tmp_path / "none.parquet").open("wb") as file:
        assert write_batches("parquet", file, nothing, schema_of(table)) == 0
    every, none = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("all", "none"))
    assert (len(none), len(every) > 0) == (0, table not in ("quarantine", "consumptions", "pops", "pop_records"))
    assert pa.concat_tables([none, every]).equals(every)


@pytest.mark.parametrize("table", sorted({*export.NAMES} - {"quality_results", "missed"}))
def test_every_table_can_be_exported_after_a_night_without_subscriptions(run: Run, tmp_path: Path, table: str) -> None:
    store = BrokerLog().append().write(tmp_path / "store")
    assert run(nightly, "--store", store, "--warehouse", tmp_path / "w").code == 0
    given = ("--warehouse", tmp_path / "w", "--format", "csv", "--output", "-")
    ended = run(export, table, *given)
    lines = ended.out.splitlines()
    assert (ended.code, ended.error) == (0, f"{table}: {counted(len(lines) - 1, 'row')} to stdout\n")
    assert "broker_name" in lines[0].split(",")


def test_the_names_of_the_command_are_those_of_the_tables() -> None:
    assert {*export.NAMES} == {*EXPORTED, DELIVERIES, MISSED}


@pytest.mark.parametrize("table", ["commitlog", "consumequeue", "deliveries"])
def test_the_column_that_no_file_has(replayed: Replayed, table: str) -> None:
    rows = [batch.num_rows for batch in batches_of(replayed("small"), table, Selection(columns=["broker_name"]))]
    assert sum(rows) == sum(batch.num_rows for batch in batches_of(replayed("small"), table, Selection()))


def test_deliveries_with_columns_of_their_messages(replayed: Replayed, run: Run, tmp_path: Path) -> None:
    warehouse = ("--warehouse", replayed("small").location)
    given = ("--with", "keys,msg_id,properties", "--columns", "consumer_group,commitlog_offset")
    assert run(export, "deliveries", *given, "--output", tmp_path / "d.parquet", *warehouse).code == 0
    named = ("--columns", "commitlog_offset,keys,msg_id,properties")
    assert run(export, "commitlog", *named, "--output", tmp_path / "m.parquet", *warehouse).code == 0
    message_at = {row["commitlog_offset"]: row for row in pq.read_table(tmp_path / "m.parquet").to_pylist()}
    rows = pq.read_table(tmp_path / "d.parquet").to_pylist()
    assert len(rows) == 3829
    assert all(row == {"consumer_group": row["consumer_group"]} | message_at[row["commitlog_offset"]] for row in rows)
    for table, columns in (("deliveries", "nosuch"), ("consumequeue", "keys")):
        ended = run(export, table, "--with", columns, "--output", tmp_path / "no.csv", *warehouse)
        assert (ended.code, (tmp_path / "no.csv").exists()) == (2, False)


def test_csv_has_timestamps_beside_milliseconds(replayed: Replayed, run: Run) -> None:
    ended = run(
        export, "deliveries", "--group", "cg_sql_region_price", "--format", "csv", "--output", "-",
        "--warehouse", replayed("small").location,
    )  # fmt: skip
    row = next(csv.DictReader(io.StringIO(ended.out)))
    for name in ("available_at", "subscription_from"):
        time = datetime.fromtimestamp(int(row[name]) / 1000, UTC)
        assert row[f"{name}_utc"] == time.isoformat(" ", "milliseconds").replace("+00:00", "Z")


def test_what_a_group_missed_is_the_rest_of_its_topics_with_the_reason_that_explain_has(
    four_nights: Path, run: Run, tmp_path: Path
) -> None:
    warehouse = Warehouse.at(str(four_nights))
    facts, outcomes = open_facts(warehouse), set()
    for group in sorted({row.consumer_group for row in facts.in_force})[::8]:
        ended = run(export, "missed", "--group", group, "--warehouse", four_nights, "--output", tmp_path / "m.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
        assert (ended.code, ended.error) == (0, f"missed: {counted(len(rows), 'row')} in {tmp_path / 'm.jsonl'}\n")
        topics = {row.topic for row in facts.history_of_groups([group])}
        missed = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]
        received = places(warehouse, "deliveries", Selection(groups=[group]), "DELIVERED")
        assert sorted([*missed, *received]) == sorted(places(warehouse, "consumequeue", Selection(topics=topics)))
        assert_said_alike(facts, group, rows)
        outcomes |= {row["outcome"] for row in rows}
    assert len(outcomes) > 3


def places(
    warehouse: Warehouse, table: str, selection: Selection, outcome: str | None = None
) -> set[tuple[str, int, int]]:
    return {
        (row["topic"], row["queue_id"], row["queue_offset"])
        for batch in batches_of(warehouse, table, selection)
        for row in batch.to_pylist()
        if outcome in (None, row.get("outcome"))
    }


def test_missed_messages_of_no_group(replayed: Replayed, run: Run) -> None:
    ended = run(export, "missed", "--output", "-", "--warehouse", replayed("small").location)
    assert (ended.code, ended.out) == (2, "")
    assert "missed needs --group" in ended.error
