"""A Spark standalone cluster: a master and two workers as processes of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import LOCALHOST, standalone_cluster
from tests.nights.commands import Ended

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
WORKERS = 2
Submit = Callable[..., Ended]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with workers of a core each."""
    with standalone_cluster(tmp_path_factory.mktemp("workers"), WORKERS) as address:
        yield address


@pytest.fixture
def submit(master: str) -> Submit:
    """Runs a job on the cluster. ``cwd`` is its working directory, ``environment`` is added to this process's."""

    def submit(job: str, *arguments: object, cwd: Path, **environment: str) -> Ended:
        ended = subprocess.run(
            [PROJECT / "spark-submit.sh", job, "--master", master, *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **LOCALHOST, **environment},
        )  # fmt: skip
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return submit
