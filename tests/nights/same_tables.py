"""Nights make the same tables, wherever their tasks run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import nightly, replay
from jobs.night import log
from schemas.messages import stored_messages
from tests.nights.commands import NIGHTS, arguments, differing, living, without_runs


def many_tasks(monkeypatch: pytest.MonkeyPatch, range_bytes: int) -> None:
    """Cuts logs into ranges of so many bytes, and stored messages into a task for each file."""
    monkeypatch.setattr(log, "RANGE_BYTES", range_bytes)
    monkeypatch.setattr(stored_messages, "FILES_IN_A_TASK", 1)


def check_same_tables(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], None]) -> None:
    """Does the work twice: as patched, and without the patches. ``work`` makes its warehouses in a folder."""
    for name in ("patched", "plain"):
        work(folder / name)
        monkeypatch.undo()
    warehouses = list((folder / "plain").iterdir())
    assert warehouses
    for warehouse in warehouses:
        assert differing(without_runs(folder / "patched" / warehouse.name), without_runs(warehouse)) == []


def check_capture(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_same_tables(folder, monkeypatch, lambda made: nightly.main(arguments(name, made / "w")))


def nights_and_a_replay(made: Path) -> None:
    """The nights of the living broker in the warehouse w, and a replay of them."""
    for night in NIGHTS:
        nightly.main(living(night, made / "w"))
    replay.main(["--warehouse", str(made / "w"), "--into", str(made / "replay")])
