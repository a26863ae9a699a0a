"""A warehouse of an older mqsieve is brought up to date by the next night.

``tests/cases/warehouses/layout_2.tar.gz`` is what commit 7ed2203 made of the first night of the living broker.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from jobs import audit, lag, nightly
from tests.nights.commands import NIGHTS, Run, differing, living, without_runs

WAREHOUSES = Path(__file__).parents[1] / "cases" / "warehouses"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(WAREHOUSES / "layout_2.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "layout_2"


def test_nights_go_on_as_if_the_first_had_been_made_today(run: Run, older: Path, four_nights: Path) -> None:
    for night in NIGHTS[1:]:
        assert run(nightly, *living(night, older)).code == 0
    assert differing(without_runs(older), without_runs(four_nights)) == []
    assert run(audit, "--warehouse", older, "--all").code == 0


def test_a_question_before_the_next_night(run: Run, older: Path) -> None:
    ended = run(lag, "--warehouse", older)
    told = f"{older} was written by an older mqsieve (layout 2): the next nightly brings it up to date"
    assert (ended.code, ended.error) == (2, f"mqsieve: {told}\n")


def test_a_run_of_the_older_one_that_was_killed(run: Run, older: Path, four_nights: Path) -> None:
    """The ledger is committed last: without it, the night must begin anew in the tables that it left."""
    for name in (each for each in (older / "run_ledger").iterdir() if each.suffix == ".parquet"):
        name.unlink()
    max((older / "run_ledger" / "_delta_log").glob("*.json")).unlink()
    for night in NIGHTS:
        assert run(nightly, *living(night, older)).code == 0
    assert differing(without_runs(older), without_runs(four_nights)) == []
