"""A warehouse of an older mqsieve is brought up to date by the next night.

``tests/cases/warehouses/layout_2.tar.gz`` is what commit 7ed2203 made of the first night of the living broker.
"""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema

from jobs import audit, lag, nightly, replay
from schemas.delta.table import UPGRADED_LAYOUT
from schemas.delta.warehouse import Warehouse
from schemas.tables import POPS
from tests.nights.commands import NIGHTS, Run, differing, living, without_runs

WAREHOUSES = Path(__file__).parents[1] / "cases" / "warehouses"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(WAREHOUSES / "layout_2.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "layout_2"


def columns(warehouse: Path) -> dict[str, set[str]]:
    """By table, its columns as other readers of Delta tables see them."""
    return {
        log.parent.name: {field.name for field in DeltaTable(str(log.parent)).schema().fields}
        for log in warehouse.glob("*/_delta_log")
    }


def test_nights_go_on_as_if_the_first_had_been_made_today(run: Run, older: Path, four_nights: Path) -> None:
    for night in NIGHTS[1:]:
        assert run(nightly, *living(night, older)).code == 0
    assert differing(without_runs(older), without_runs(four_nights)) == []
    assert columns(older) == columns(four_nights)
    assert run(audit, "--warehouse", older, "--all").code == 0


def test_columns_that_could_not_be_null(tmp_path: Path) -> None:
    """Spark reads a null as 0 where the schema says that there is none."""
    warehouse = Warehouse.at(str(tmp_path / "w"))
    older_columns = [field.with_nullable(field.nullable and field.name != "start_offset") for field in POPS.columns]
    warehouse.log(replace(POPS, columns=older_columns)).create()
    table = DeltaTable(str(tmp_path / "w" / POPS.name))
    table.alter.set_table_description("(mqsieve layout 5)")
    Warehouse.at(warehouse.location).log(POPS).upgrade()
    assert DeltaTable(table.table_uri).schema() == Schema.from_arrow(POPS.schema)


def test_a_question_before_the_next_night(run: Run, older: Path) -> None:
    ended = run(lag, "--warehouse", older)
    message = f"{older} was written by an older mqsieve (layout 2): the next nightly brings it up to date"
    assert (ended.code, ended.error) == (2, f"mqsieve: {message}\n")


def test_a_replay_must_be_made_again(run: Run, four_nights: Path, tmp_path: Path) -> None:
    """No night can be added to it."""
    assert run(replay, "--warehouse", four_nights, "--into", tmp_path / "r").code == 0
    tables = [DeltaTable(str(log.parent)) for log in (tmp_path / "r").glob("*/_delta_log")]
    for table in tables:
        table.alter.set_table_description(f"(mqsieve layout {UPGRADED_LAYOUT})")
    message = f"{tmp_path / 'r'} was written by an older mqsieve (layout 2): run replay again, into another folder"
    assert run(lag, "--warehouse", tmp_path / "r").error == f"mqsieve: {message}\n"
    versions = [table.version() for table in tables]
    assert run(nightly, *living(NIGHTS[0], tmp_path / "r")).error == f"mqsieve: {message}\n"
    assert [DeltaTable(table.table_uri).version() for table in tables] == versions


def test_a_run_of_the_older_one_that_was_killed(run: Run, older: Path, four_nights: Path) -> None:
    """The ledger is committed last: without it, the night must begin anew in the tables that it left."""
    for name in (each for each in (older / "run_ledger").iterdir() if each.suffix == ".parquet"):
        name.unlink()
    max((older / "run_ledger" / "_delta_log").glob("*.json")).unlink()
    for night in NIGHTS:
        assert run(nightly, *living(night, older)).code == 0
    assert differing(without_runs(older), without_runs(four_nights)) == []
