"""A Spark standalone cluster: a master and two workers as processes of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from tests.cluster.processes import Server
from tests.nights.commands import Ended

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
LOCALHOST = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)}
Submit = Callable[..., Ended]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with workers of a core each."""
    folder = tmp_path_factory.mktemp("workers")
    with ExitStack() as running:

        def start(role: str, *arguments: object) -> Server:
            name = f"org.apache.spark.deploy.{role.lower()}.{role}"
            ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            command = [SPARK_HOME / "bin" / "spark-class", name, *ports, *arguments]
            return running.enter_context(Server(list(map(str, command)), LOCALHOST))

        address = start("Master").wait_for("Starting Spark master at").split()[-1]
        sizes = ("--cores", 1, "--memory", "1g", "--work-dir")
        workers = [start("Worker", *sizes, folder / str(number), address) for number in range(WORKERS)]
        for worker in workers:
            worker.wait_for("Successfully registered with master")
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
