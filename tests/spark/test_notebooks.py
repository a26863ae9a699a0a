"""The notebooks run in a session that exists already, and show what is stored in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from notebooks.run import NOTEBOOKS, code_cells, outputs_of
from tests.depth import DEEP

NAMES = {
    "first_look",
    "why_was_it_dropped",
    "what_if",
    "bit_map",
    "lag",
    "your_own_log",
    "spark_pipeline",
    "join_your_data",
}
MACHINE_PATHS = ("/tmp/", "/home/", "/work/", "/root/")


def test_all_notebooks_are_run() -> None:
    assert {path.stem for path in NOTEBOOKS} == NAMES


def notebooks() -> list[object]:
    """All, but the pipeline's only where there is time: test_spark_pipeline.py runs the same queries."""
    slow = pytest.mark.skipif(not DEEP, reason="a minute and a half, with MQSIEVE_DEEP=1")
    return [pytest.param(path, id=path.stem, marks=slow if path.stem == "spark_pipeline" else ()) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", notebooks())
def test_a_notebook_shows_what_is_stored_in_it(path: Path, spark: SparkSession) -> None:
    cells = code_cells(json.loads(path.read_text("utf-8")))
    stored = [cell["outputs"] for cell in cells]
    assert outputs_of(path) == stored, "run .venv/bin/python notebooks/run.py"
    assert any(stored)
    assert not [name for name in MACHINE_PATHS if name in json.dumps(stored)]
    assert {cell["execution_count"] for cell in cells} == {None}
    assert spark.range(3).count() == 3
