"""Faults hit whole nights, without Spark."""

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
    """Nights in processes of their own."""
    with night_process() as process:
        yield process


@pytest.fixture
def broker(tmp_path: Path) -> FaultyBroker:
    return FaultyBroker(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> FaultyBroker:
    """A broker whose nights met no fault, and what its warehouse was after each. Tests only read it."""
    broker = FaultyBroker(tmp_path_factory.mktemp("undisturbed"))
    for number in NIGHTS:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            nightly.main(broker.arguments(number))
        shutil.copytree(broker.warehouse, broker.kept(number))
    return broker
