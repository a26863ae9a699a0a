"""Nights whose tasks Spark's workers do make the same tables as those in the driver's own process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs import nightly, pulls, replay
from jobs.night import log_plan
from schemas.messages import stored_entries
from tests.nights.commands import arguments, differing, living, without_runs


@pytest.fixture
def _by_spark(tasks_in_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers do every task, and there are many."""
    monkeypatch.setattr(log_plan, "RANGE_BYTES", 100_000)
    monkeypatch.setattr(stored_entries, "FILES_IN_A_TASK", 1)


@pytest.mark.parametrize("name", ["small", "otherbloom", "small_torn"])
@pytest.mark.usefixtures("_by_spark")
def test_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nightly.main(arguments(name, tmp_path / "spark"))
    monkeypatch.undo()
    nightly.main(arguments(name, tmp_path / "driver"))
    assert differing(without_runs(tmp_path / "spark"), without_runs(tmp_path / "driver")) == []


@pytest.mark.usefixtures("_by_spark")
def test_a_living_broker_and_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = ["--group", "cg_expired", "--topic", "OrderEvents", "--warehouse"]
    answers = []
    for warehouse in (tmp_path / "spark", tmp_path / "driver"):
        for night in (1, 2, 3, 4):
            nightly.main(living(night, warehouse))
        replay.main(["--warehouse", str(warehouse), "--into", f"{warehouse}_replay"])
        capsys.readouterr()
        pulls.main([*question, str(warehouse)])
        answers.append(capsys.readouterr().out)
        monkeypatch.undo()
    assert answers[0] == answers[1]
    for name in ("", "_replay"):
        found, expected = without_runs(Path(f"{tmp_path}/spark{name}")), without_runs(Path(f"{tmp_path}/driver{name}"))
        assert differing(found, expected) == []
    shutil.rmtree(tmp_path)
