"""Tables damaged by a power loss, another program or a person: one line says so, and its advice repairs them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs import export, lag, maintain, nightly, pulls, verify
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import TABLES
from tests.captures import capture
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Ended, Run, differing, without_runs
from tests.nights.growing_broker import BEFORE, GrowingBroker, sql

DERIVED = (
    "consumequeue", "delivery_blocks", "delivery_stats", "pull_windows", "current_offsets", "queue_progress",
    "subscriptions",
)  # fmt: skip
"""Tables that are derived from others."""
INPUT = ("commitlog", "consumer_offsets", "quarantine", "subscription_events")
"""Tables with data that only the store had."""
WITHOUT_ROWS = ("pop_records", "pops", "consumptions")
"""No group of this broker pops, and no client writes traces."""


def data_file(table: Path) -> Path:
    """A data file of the present version of a table."""
    return table / sorted(DeltaTable(str(table)).file_uris())[0].rpartition("/")[2]


def last_commit(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def noise(file: Path) -> None:
    file.write_bytes(b"\x93\x00{]" * 40)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": shutil.rmtree,
    "last commit removed": lambda table: last_commit(table).unlink(),
    "last commit emptied": lambda table: last_commit(table).write_bytes(b""),
    "last commit cut": lambda table: cut(last_commit(table)),
    "last commit is noise": lambda table: noise(last_commit(table)),
    "data file missing": lambda table: data_file(table).unlink(),
    "data file cut": lambda table: cut(data_file(table)),
}


def misspell(file: Path, word: str) -> None:
    """Flips a bit in each place of a word."""
    assert word in file.read_text()
    file.write_text(file.read_text().replace(word, chr(ord(word[0]) ^ 1) + word[1:]))


def lose_statistics(table: Path) -> None:
    """A new checkpoint without the statistics of files."""
    DeltaTable(str(table)).create_checkpoint()
    (file,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(file).to_pydict()
    rows["add"] = [each and {**each, "stats": None} for each in rows["add"]]
    pq.write_table(pa.table(rows, pq.read_schema(file)), file)


LOG_DAMAGES: dict[str, Callable[[Path], object]] = {
    "no number of rows": lambda table: misspell(last_commit(table), "numRecords"),
    "no least values": lambda table: misspell(last_commit(table), "minValues"),
    "no greatest value": lambda table: misspell(last_commit(table), 'run\\":'),
    "checkpoint without statistics": lose_statistics,
}


def cases(first: str, names: Sequence[str], damage: str) -> list[tuple[str, str]]:
    """All kinds of damage to one table, and one kind to each other table."""
    return [(first, each) for each in DAMAGES] + [(name, damage) for name in names if name != first]


def damaged(broker: FaultyBroker, undisturbed: FaultyBroker, name: str, damage: str) -> FaultyBroker:
    broker.start_from(undisturbed, 2)
    DAMAGES[damage](broker.warehouse / name)
    return broker


def refusal(ended: Ended, name: str) -> str:
    """The error line of a job that refused because of a table."""
    assert ended.code == 2
    assert ended.out == ""
    assert ended.error.startswith("mqsieve: ")
    assert ended.error.count("\n") == 1
    assert name in ended.error
    return ended.error


def test_every_table_is_listed() -> None:
    assert {*DERIVED, *INPUT, *WITHOUT_ROWS} == {table.name for table in TABLES}


@pytest.mark.parametrize(("name", "damage"), cases("delivery_blocks", DERIVED, "last commit emptied"))
def test_a_table_that_follows_from_others_is_rebuilt(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str, damage: str
) -> None:
    damaged(broker, undisturbed, name, damage)
    assert "./spark-submit.sh maintain --rebuild" in refusal(run(nightly, *broker.arguments(2)), name)
    ended = run(maintain, "--rebuild", "--warehouse", broker.warehouse)
    assert ended.code == 0, ended.error
    broker.assert_same(without_runs(undisturbed.kept(2)))
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out


@pytest.mark.parametrize(("name", "damage"), cases("commitlog", INPUT, "data file missing"))
def test_a_table_that_cannot_be_derived_is_refused_with_words(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str, damage: str
) -> None:
    damaged(broker, undisturbed, name, damage)
    for ended in (run(nightly, *broker.arguments(2)), run(maintain, "--rebuild", "--warehouse", broker.warehouse)):
        error = refusal(ended, name)
        assert "from a copy" in error
        assert "give another --warehouse and run nightly on the store again" in error
    shutil.rmtree(broker.warehouse / name, ignore_errors=True)
    shutil.copytree(undisturbed.kept(2) / name, broker.warehouse / name)
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out
    broker.assert_same(without_runs(undisturbed.kept(2)))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ledger(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, damage: str) -> None:
    """Without the last entry, the last night counts as one that died. Any other damage is refused."""
    damaged(broker, undisturbed, "run_ledger", damage)
    ended = run(nightly, *broker.arguments(2))
    if damage in ("last commit removed", "last commit emptied"):
        assert ended.code == 0, ended.error
        broker.assert_same(without_runs(undisturbed.kept(2)))
    else:
        assert "give another --warehouse and run nightly on the store again" in refusal(ended, "run_ledger")


def test_answers_over_a_damaged_table_are_refused_too(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    damaged(broker, undisturbed, "consumequeue", "data file missing")
    where = ("--warehouse", broker.warehouse)
    refusal(run(verify, "--store", capture("small") / "store", *where), "consumequeue")
    refusal(run(pulls, "--group", "cg_all", "--topic", "T", *where), "consumequeue")
    refusal(run(export, "deliveries", "--output", "-", *where), "consumequeue")


def test_a_flipped_byte_in_a_data_file_is_met_when_it_is_read(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    broker.start_from(undisturbed, 2)
    file = data_file(broker.warehouse / "commitlog")
    content = bytearray(file.read_bytes())
    column = pq.ParquetFile(file).metadata.row_group(0).column(0)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    file.write_bytes(content)
    ended = run(export, "commitlog", "--output", broker.folder / "out.jsonl", "--warehouse", broker.warehouse)
    assert "CRC" in refusal(ended, file.name)
    assert not (broker.folder / "out.jsonl").exists()


@pytest.mark.parametrize("damage", LOG_DAMAGES)
def test_a_delta_log_without_statistics(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, damage: str) -> None:
    broker.start_from(undisturbed, 2)
    for name, advice in (("consumequeue", "maintain --rebuild"), ("commitlog", "from a copy")):
        LOG_DAMAGES[damage](broker.warehouse / name)
        for ended in (run(nightly, *broker.arguments(2)), run(lag, "--warehouse", broker.warehouse)):
            error = refusal(ended, f"the Delta log of {name} has no statistics of part-")
            assert advice in error
        shutil.rmtree(broker.warehouse / name)
        shutil.copytree(undisturbed.kept(2) / name, broker.warehouse / name)
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out


@pytest.mark.parametrize("name", ["commitlog", "delivery_blocks"])
def test_rows_that_somebody_deleted_come_back_with_a_restore(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str
) -> None:
    broker.start_from(undisturbed, 2)
    table = DeltaTable(str(broker.warehouse / name))
    version = table.version()
    table.delete("topic = 'T'")
    error = refusal(run(nightly, *broker.arguments(2)), name)
    assert "was changed by another program (DELETE" in error
    table.restore(version)
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out
    broker.assert_same(without_runs(undisturbed.kept(2)))


def test_a_table_restored_to_an_earlier_night(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker) -> None:
    """A commitlog of one night, with a ledger of two nights."""
    broker.start_from(undisturbed, 2)
    table = DeltaTable(str(broker.warehouse / "commitlog"))
    table.restore(table.version() - 1)
    assert "RESTORE" in refusal(run(nightly, *broker.arguments(2)), "commitlog")
    table.restore(table.version() - 1)
    assert "There was nothing new" in run(nightly, *broker.arguments(2)).out


def test_a_table_of_an_earlier_night_with_as_many_rows(run: Run, tmp_path: Path) -> None:
    """Half of a backup was put back. The offsets are older, and not fewer."""
    broker, warehouse = GrowingBroker(run, tmp_path), tmp_path / "w"
    for _ in range(2):
        shutil.rmtree(tmp_path / "backup", ignore_errors=True)
        if warehouse.exists():
            shutil.copytree(warehouse, tmp_path / "backup")
        broker.grow()
        assert broker.night([sql(BEFORE, "cg", "n IS NOT NULL")]).code == 0
    expected = without_runs(warehouse)
    assert expected["current_offsets"].total() == without_runs(tmp_path / "backup")["current_offsets"].total()
    shutil.rmtree(warehouse / "current_offsets")
    shutil.copytree(tmp_path / "backup" / "current_offsets", warehouse / "current_offsets")
    error = refusal(
        run(lag, "--warehouse", warehouse), "current_offsets is at version 1, and the last run left it at 2"
    )
    assert "maintain --rebuild" in error
    assert run(maintain, "--rebuild", "--warehouse", warehouse).code == 0
    assert differing(without_runs(warehouse), expected) == []


def test_optimize_and_vacuum_between_two_nights(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker) -> None:
    broker.start_from(undisturbed, 1)
    for table in (*TABLES, RUN_LEDGER):
        opened = DeltaTable(str(broker.warehouse / table.name))
        opened.optimize.compact()
        opened.vacuum(0, dry_run=False, enforce_retention_duration=False)
        opened.create_checkpoint()
    assert run(nightly, *broker.arguments(2)).code == 0
    broker.assert_same(without_runs(undisturbed.kept(2)))


def test_a_checkpoint_of_which_half_was_written(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker) -> None:
    broker.start_from(undisturbed, 2)
    for name in ("commitlog", "run_ledger"):
        DeltaTable(str(broker.warehouse / name)).create_checkpoint()
        cut(next((broker.warehouse / name / "_delta_log").glob("*.checkpoint.parquet")))
    ended = run(nightly, *broker.arguments(2))
    if ended.code:
        refusal(ended, "run_ledger")
    else:
        broker.assert_same(without_runs(undisturbed.kept(2)))


def test_a_deleted_commitlog_does_not_advise_what_the_user_just_did(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    damaged(broker, undisturbed, "commitlog", "deleted")
    error = refusal(run(nightly, *broker.arguments(2)), "commitlog is missing")
    assert "run nightly first" not in error


def test_the_warehouse_that_a_user_sees_has_no_temporary_files(undisturbed: FaultyBroker) -> None:
    warehouse = Warehouse.at(str(undisturbed.kept(2)))
    for table in (*TABLES, RUN_LEDGER):
        folder = Path(warehouse.log(table).storage.root)
        assert all(file.suffix in (".parquet", ".json") for file in folder.rglob("*") if file.is_file()), table.name
