"""Runs tasks on Spark's workers, or in the driver's own process if there is little to do."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

Session: TypeAlias = "Callable[[], SparkSession]"
"""Returns the Spark session, and starts it if needed."""
LITTLE = 512 << 20
"""Bytes of a log that one core filters in about the time that a Spark job takes to start its workers."""

LITTLE_WITHOUT_SPARK = 2 << 30
"""Bytes of a log that one core filters in about the time that Spark takes with the start of a session."""

SECONDS_OF_A_READY_SESSION = 0.1
"""A session that already runs is returned in less time."""


def run_tasks(
    tasks: Sequence[Task], function: Callable[[Task], Result], size: int, session: Session | None
) -> list[Result]:
    """The result of each task, in order. ``size``: bytes that all tasks read; ``session`` is called if that is much.

    Without a running session, more bytes count as little. While a session starts, this process does the first tasks.
    """
    if session is None or size <= (LITTLE if _spark_runs() else max(LITTLE, LITTLE_WITHOUT_SPARK)):
        return [function(task) for task in tasks]
    results: list[Result] = []
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(session)
        wait([starting], SECONDS_OF_A_READY_SESSION)
        while not starting.done() and len(results) < len(tasks):
            results.append(function(tasks[len(results)]))
        spark = starting.result()
    rest = tasks[len(results) :]
    return results + (_run_in_spark(rest, function, spark) if rest else [])


def _spark_runs() -> bool:
    """Whether a session is active, or spark-submit or Spark Connect brings one."""
    if not os.environ.keys().isdisjoint({"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}):
        return True
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def _run_in_spark(tasks: Sequence[Task], function: Callable[[Task], Result], spark: SparkSession) -> list[Result]:
    indices = spark.range(0, len(tasks), 1, len(tasks))
    rows = indices.mapInArrow(_Runner(tuple(tasks), function), "task bigint, result binary").toArrow()
    results = dict(zip(rows["task"].to_pylist(), rows["result"].to_pylist(), strict=True))
    # The results were pickled by this program's own workers.
    return [pickle.loads(results[index]) for index in range(len(tasks))]  # noqa: S301


@dataclass(frozen=True)
class _Runner(Generic[Task, Result]):
    tasks: tuple[Task, ...]
    function: Callable[[Task], Result]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch["id"].to_pylist():
                result: Any = self.function(self.tasks[index])
                yield pa.RecordBatch.from_pydict({"task": [index], "result": [pickle.dumps(result)]})
