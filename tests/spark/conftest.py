"""The one Spark session of the tests in this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.cli.session import spark_session
from schemas import spark_tasks
from tests.replayed import replayed as replayed

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[SparkSession]:
    """The one Spark session of the whole test run."""
    if worker_id != "master":
        (tmp_path_factory.getbasetemp().parent / "spark").touch(exist_ok=False)  # fails in a second process
    session = spark_session("mqsieve tests")
    yield session
    session.stop()


@pytest.fixture
def tasks_in_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task goes to Spark's workers, however little there is to do and however long the session takes."""
    monkeypatch.setattr(spark_tasks, "SPARK_FROM_BYTES", -1)
    monkeypatch.setattr(spark_tasks, "MOST_THREADS", 0)
    monkeypatch.setattr(spark_tasks, "SECONDS_OF_A_READY_SESSION", 600)
