"""Where tasks run: in threads of this process, or in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Barrier
from typing import NoReturn

import pytest

from schemas import spark_tasks
from schemas.spark_tasks import NEW_SESSION_FROM_BYTES, SPARK_FROM_BYTES, place_text, run_tasks

BOTH = Barrier(2, timeout=60)


class SparkStartedError(Exception):
    pass


def session() -> NoReturn:
    raise SparkStartedError


@dataclass
class Remembering:
    """Returns the task that it remembers after both threads have set theirs."""

    task: int = -1

    def __call__(self, task: int) -> int:
        self.task = task
        BOTH.wait()
        return self.task


def half(task: int) -> float:
    return 10 / task


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_tasks, "cores", lambda: 2)


def test_tasks_run_at_the_same_time_and_share_nothing() -> None:
    assert list(run_tasks(range(4), Remembering(), 0, None)) == [0, 1, 2, 3]


def test_the_error_of_a_task_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(run_tasks([1, 2, 0, 4], half, 0, None))


def test_a_machine_with_few_cores_never_starts_spark() -> None:
    assert list(run_tasks([1, 2], half, 1 << 60, session)) == [10, 5]


def test_more_cores_than_threads_start_spark_for_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_tasks, "cores", lambda: 16)
    assert list(run_tasks([1, 2], half, SPARK_FROM_BYTES, session)) == [10, 5]
    with pytest.raises(SparkStartedError):
        list(run_tasks([1, 2], half, NEW_SESSION_FROM_BYTES + 1, session))


def test_a_given_master_means_spark_whatever_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSIEVE_SPARK_OPTIONS", "--master\nlocal[2]")
    with pytest.raises(SparkStartedError):
        list(run_tasks([1, 2], half, 0, session))
    assert list(run_tasks([], half, 0, session)) == []
    assert list(run_tasks([1, 2], half, 0, None)) == [10, 5]


def test_the_place_of_tasks_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    few = "in this process, in up to 2 threads: Spark would have the same cores; with --master it runs on Spark"
    assert place_text(False) == few
    monkeypatch.setenv("MQSIEVE_SPARK_OPTIONS", "--master\nlocal[2]")
    assert place_text(True) == "on Spark's workers: a master was given"
