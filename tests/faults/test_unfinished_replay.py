"""A replay dies before its ledger row, and the same command runs again."""

from __future__ import annotations

import shutil

import pytest

from jobs import maintain, nightly, replay
from schemas.delta.delta_log import DeltaLog
from schemas.run_ledger import RUN_LEDGER
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Run, without_runs


@pytest.mark.parametrize("number", [1, 2])
def test_a_replay_again(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The first or the second replay into a folder dies."""
    target, other = broker.folder / "replay", broker.folder / "other"
    given = ("--warehouse", undisturbed.kept(2), "--into")
    if number == 2:
        assert run(replay, *given, target).code == 0
    commit = DeltaLog.commit

    def dies(log: DeltaLog, *arguments: object) -> None:
        if log.table is RUN_LEDGER:
            raise KeyboardInterrupt
        commit(log, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaLog, "commit", dies)
    assert run(replay, *given, target).code == 130
    monkeypatch.undo()
    ended = run(replay, *given, target)
    assert ended.code == 0, ended.error
    assert run(replay, *given, other).code == 0
    assert without_runs(target) == without_runs(other)
    assert run(nightly, *broker.arguments(1, warehouse=target)).code == 2


def test_a_damaged_replay_is_not_rebuilt(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker) -> None:
    """A rebuild repeats nights, and would make of a replay what the groups received then."""
    target = broker.folder / "replay"
    assert run(replay, "--warehouse", undisturbed.kept(2), "--into", target).code == 0
    shutil.rmtree(target / "delivery_stats")
    ended = run(maintain, "--rebuild", "--warehouse", target)
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert "run replay again, into another folder" in ended.error
