"""A fixture of whole nights on captures, for tests/nights and tests/spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from jobs import nightly
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import arguments

Replayed: TypeAlias = Callable[[str], Warehouse]
"""The warehouse of a night on a capture, by its name."""


@pytest.fixture(scope="session")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """The warehouse of a night on a capture, made once per test run. Tests only read it."""
    made: dict[str, Path] = {}

    def replay(name: str) -> Warehouse:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            nightly.main(arguments(name, folder))
            made[name] = folder
        return Warehouse.at(str(made[name]))

    return replay
