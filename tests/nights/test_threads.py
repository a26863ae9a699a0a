"""Nights whose tasks run in threads make the same tables as those of a single thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import nightly, replay
from jobs.night import log_plan
from schemas import spark_tasks
from schemas.messages import stored_entries
from tests.nights.commands import arguments, differing, living, without_runs


@pytest.fixture
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads have many tasks."""
    monkeypatch.setattr(spark_tasks, "cores", lambda: 4)
    monkeypatch.setattr(log_plan, "RANGE_BYTES", 50_000)
    monkeypatch.setattr(stored_entries, "FILES_IN_A_TASK", 1)


@pytest.mark.parametrize("name", ["small", "otherbloom", "small_torn"])
@pytest.mark.usefixtures("_four_threads")
def test_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nightly.main(arguments(name, tmp_path / "threads"))
    monkeypatch.undo()
    nightly.main(arguments(name, tmp_path / "one"))
    assert differing(without_runs(tmp_path / "threads"), without_runs(tmp_path / "one")) == []


@pytest.mark.usefixtures("_four_threads")
def test_a_living_broker_and_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for warehouse in (tmp_path / "threads", tmp_path / "one"):
        for night in (1, 2, 3, 4):
            nightly.main(living(night, warehouse))
        replay.main(["--warehouse", str(warehouse), "--into", f"{warehouse}_replay"])
        monkeypatch.undo()
    for name in ("", "_replay"):
        found, expected = without_runs(Path(f"{tmp_path}/threads{name}")), without_runs(Path(f"{tmp_path}/one{name}"))
        assert differing(found, expected) == []
