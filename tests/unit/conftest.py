"""Unit tests do without pandas, as jobs do: PyArrow would import it for the first list, which takes a second."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jobs.cli.application import without_pandas

collecting = ExitStack()
collecting.enter_context(without_pandas())


def pytest_collection_finish() -> None:
    collecting.close()


def pytest_unconfigure() -> None:  # Where the collection failed.
    collecting.close()


@pytest.fixture(scope="package", autouse=True)
def _without_pandas() -> Iterator[None]:
    with without_pandas():
        yield
