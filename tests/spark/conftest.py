from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import nightly
from jobs.cli.session import spark_session
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import arguments

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the whole test run."""
    session = spark_session("mqsieve tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Warehouse]:
    """The warehouse of a night on a capture, made once a test run; tests only read it."""
    made: dict[str, Path] = {}

    def replay(name: str) -> Warehouse:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            nightly.main(arguments(name, folder))
            made[name] = folder
        return Warehouse.at(str(made[name]))

    return replay
