"""Nights whose tasks Spark's workers do make the same tables as those in the driver's own process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs import pulls
from tests.nights.same_tables import check_capture, check_same_tables, many_tasks, nights_and_a_replay


@pytest.fixture
def _by_spark(tasks_in_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers do every task, and there are many."""
    many_tasks(monkeypatch, range_bytes=100_000)


@pytest.mark.parametrize("name", ["small", "otherbloom", "small_torn"])
@pytest.mark.usefixtures("_by_spark")
def test_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    check_capture(name, tmp_path, monkeypatch)


@pytest.mark.usefixtures("_by_spark")
def test_a_living_broker_and_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = ["--group", "cg_expired", "--topic", "OrderEvents", "--warehouse"]
    answers = []

    def work(made: Path) -> None:
        nights_and_a_replay(made)
        capsys.readouterr()
        pulls.main([*question, str(made / "w")])
        answers.append(capsys.readouterr().out)

    check_same_tables(tmp_path, monkeypatch, work)
    assert answers[0] == answers[1]
    shutil.rmtree(tmp_path)
