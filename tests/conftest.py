import gc
from pathlib import Path

import pytest
from hypothesis import settings

SPARK = Path(__file__).parent / "spark"

# The known answers are millions of long-lived objects: garbage collections took half of the time.
gc.set_threshold(200_000, 20, 1_000)

# The same examples in every run, so that failures repeat. For new examples: tests.unit.sql92.differential.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A file's tests stay in one process, and so do all tests that share the Spark session.
    for item in items:
        item.add_marker(pytest.mark.xdist_group("spark" if SPARK in item.path.parents else str(item.path)))


def pytest_sessionfinish():
    # Pytest and Python collect garbage ten times at the end; the known answers are left out.
    gc.freeze()
