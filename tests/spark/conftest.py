import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import nightly
from jobs.session import spark_session
from schemas.warehouse import Warehouse
from tests.captures import DAMAGED, capture

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the whole test run."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = spark_session("mqsieve tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Warehouse]:
    """The warehouse of a night on a capture, made once a test run; tests only read it."""
    made: dict[str, Warehouse] = {}

    def replay(name: str) -> Warehouse:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            nightly.main(arguments(name, folder))
            made[name] = Warehouse.at(str(folder))
        return made[name]

    return replay


def arguments(name: str, warehouse: Path) -> list[str]:
    """The command line of a night on a capture; a damaged one has the undamaged one's subscriptions."""
    undamaged = capture("small" if name in DAMAGED else name)
    return [
        "--store", str(capture(name) / "store"),
        "--subscriptions", str(undamaged / "subscription_events.jsonl"),
        "--broker-config", str(undamaged / "broker.conf"),
        "--warehouse", str(warehouse),
    ]  # fmt: skip
