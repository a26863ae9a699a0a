"""Tests of faults in whole nights, without Spark."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import nightly
from tests.faults.kill import Nights, night_process
from tests.faults.stores import NIGHTS, FaultyBroker
from tests.nights.conftest import _no_spark, replayed, run

__all__ = ["_no_spark", "replayed", "run"]


@pytest.fixture(scope="session")
def nights() -> Iterator[Nights]:
    """Runs nights in their own processes."""
    with night_process() as process:
        yield process


@pytest.fixture
def broker(tmp_path: Path) -> FaultyBroker:
    return FaultyBroker(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> FaultyBroker:
    """A broker with nights without faults, and its warehouse after each night. Tests only read it."""
    broker = FaultyBroker(tmp_path_factory.mktemp("undisturbed"))
    for number in NIGHTS:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            nightly.main(broker.arguments(number))
        shutil.copytree(broker.warehouse, broker.kept(number))
    return broker
