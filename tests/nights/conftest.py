"""Tests of whole nights without Spark: a test that asks for a session fails."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from jobs import nightly
from jobs.cli import application, session
from tests.nights.commands import NIGHTS, Ended, Run, living
from tests.nights.growing_broker import GrowingBroker
from tests.replayed import replayed as replayed


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session(app_name: str) -> None:
        raise AssertionError(f"{app_name} asked for a Spark session")

    monkeypatch.setattr(session, "spark_session", no_session)


@pytest.fixture(scope="session")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the running broker's warehouse after each of its nights 1 to 4. Tests only read it."""
    folder = tmp_path_factory.mktemp("nights")
    for night in NIGHTS:
        if night > 1:
            shutil.copytree(folder / str(night - 1), folder / str(night))
        nightly.main(living(night, folder / str(night)))
    return folder


@pytest.fixture(scope="session")
def four_nights(nights: Path) -> Path:
    """The running broker's warehouse after all of its nights. Tests only read it."""
    return nights / str(NIGHTS[-1])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a job in this process as spark-submit.sh does. Returns its exit code, stdout and stderr."""

    def run(job: ModuleType, *arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["job", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            application.run(job.main)
        printed = capsys.readouterr()
        return Ended(int(str(ended.value.code)), printed.out, printed.err)

    return run


@pytest.fixture
def broker(run: Run, tmp_path: Path) -> GrowingBroker:
    """A broker with ten messages."""
    made = GrowingBroker(run, tmp_path)
    made.grow()
    return made
