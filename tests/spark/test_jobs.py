"""Tasks as Spark jobs: results come in order while other tasks wait, and an error ends all jobs."""

from __future__ import annotations

import re
import threading
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas import spark_tasks
from schemas.spark_tasks import Worker, place_text, run_tasks, this_worker

TASKS = 6


@pytest.fixture(autouse=True)
def _small_limits(tasks_in_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job has one task."""
    monkeypatch.setattr(spark_tasks, "FIRST_TASKS", 1)
    monkeypatch.setattr(spark_tasks, "RESULT_BYTES", 1)


def begun(task: int, folder: Path) -> tuple[int, Worker]:
    (folder / str(task)).touch()
    return task, this_worker()


def test_results_come_in_order_while_later_tasks_have_not_begun(spark: SparkSession, tmp_path: Path) -> None:
    results = run_tasks(range(TASKS), partial(begun, folder=tmp_path), 0, lambda: spark)
    assert next(results)[0] == 0
    assert not (tmp_path / str(TASKS - 1)).exists()
    rest = list(results)
    assert [task for task, _ in rest] == list(range(1, TASKS))
    where = place_text(True, {worker for _, worker in rest})
    assert re.fullmatch(r"on Spark's workers \([12] Python workers? in 1 executor\): there was much to read", where)


def failing_first(task: int) -> None:
    if task == 0:
        raise ValueError("the first task fails")
    threading.Event().wait()


def test_an_error_ends_tasks_that_still_run(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="the first task fails"):
        list(run_tasks(range(TASKS), failing_first, 0, lambda: spark))
