"""Runs tasks on Spark's workers, or in the driver's own process if there is little to do."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    if session is None or size <= (LITTLE if _spark_runs() else LITTLE_WITHOUT_SPARK):
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


def run_on_rows(rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[Result]]) -> list[Result]:
    """All that ``function`` yields on Spark's workers for the batches of each partition, in any order."""
    results = rows.mapInArrow(_Pickling(function), "result binary").toArrow()["result"].to_pylist()
    # The results were pickled by this program's own workers.
    return [pickle.loads(result) for result in results]  # noqa: S301


def is_session_given() -> bool:
    """Whether spark-submit or Spark Connect brings the session."""
    return not os.environ.keys().isdisjoint({"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"})


def _spark_runs() -> bool:
    pyspark = sys.modules.get("pyspark.sql")
    return is_session_given() or (pyspark is not None and pyspark.SparkSession.getActiveSession() is not None)


def _run_in_spark(tasks: Sequence[Task], function: Callable[[Task], Result], spark: SparkSession) -> list[Result]:
    indices = spark.range(0, len(tasks), 1, len(tasks))
    results = dict(run_on_rows(indices, _Runner(tuple(tasks), function)))
    return [results[index] for index in range(len(tasks))]


@dataclass(frozen=True)
class _Runner(Generic[Task, Result]):
    tasks: tuple[Task, ...]
    function: Callable[[Task], Result]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Result]]:
        for batch in batches:
            for index in batch["id"].to_pylist():
                yield index, self.function(self.tasks[index])


@dataclass(frozen=True)
class _Pickling(Generic[Result]):
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[Result]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in self.function(batches):
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})
