"""Nights whose tasks run in threads make the same tables as those of a single thread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import what_if
from schemas import spark_tasks
from tests.nights.commands import Run
from tests.nights.growing_broker import BEFORE, GrowingBroker, sql
from tests.nights.same_tables import check_capture, check_same_tables, many_tasks, nights_and_a_replay


@pytest.fixture
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads have many tasks."""
    monkeypatch.setattr(spark_tasks, "cores", lambda: 4)
    many_tasks(monkeypatch, range_bytes=50_000)


@pytest.mark.parametrize("name", ["small", "otherbloom", "small_torn"])
@pytest.mark.usefixtures("_four_threads")
def test_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    check_capture(name, tmp_path, monkeypatch)


@pytest.mark.usefixtures("_four_threads")
def test_a_living_broker_and_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_same_tables(tmp_path, monkeypatch, nights_and_a_replay)


@pytest.mark.usefixtures("_four_threads")
def test_a_deep_expression(run: Run, broker: GrowingBroker) -> None:
    deep = "n IN ('1', '5')"
    for number in range(200):
        deep = f"({deep} OR a{number} = '1') AND b{number} IS NULL"
    for _ in range(2):
        broker.night([sql(BEFORE, "cg", deep)])
        broker.grow()
    assert broker.received("cg") == [1, 5]
    wanted = deep.replace("'5'", "'7'")
    ended = run(what_if, "--warehouse", broker.folder / "w", "--group", "cg", "--sql", wanted, "--json")
    answer = json.loads(ended.out)
    assert (answer["gained"], answer["lost"], answer["kept"]) == (1, 1, 1)
