"""Runs tasks in threads of the driver, or on Spark's workers if a master is given or there is much to do."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

from filtering.counted import counted
from schemas.errors import given_spark_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

Session: TypeAlias = "Callable[[], SparkSession]"
"""Returns the Spark session, and starts it if needed."""
LITTLE = 512 << 20
"""Bytes of a log that the driver filters in about the time that a Spark job takes to start its workers."""

LITTLE_WITHOUT_SPARK = 8 << 30
"""Bytes of a log that the driver filters in about the time that Spark takes with the start of a session."""

MOST_THREADS = 4
"""A task holds Python's interpreter lock for a quarter of its time."""

SECONDS_OF_A_READY_SESSION = 0.1
"""A session that already runs is returned in less time."""


def run_tasks(
    tasks: Sequence[Task], function: Callable[[Task], Result], size: int, session: Session | None
) -> Iterator[Result]:
    """Yields the result of each task, in order. ``function`` is copied for each thread, or pickled for Spark's workers.

    ``size``: bytes that all tasks read. With a master, Spark does all tasks. Without one, ``session`` is called if that
    is more than LITTLE or, where no session runs yet, more than LITTLE_WITHOUT_SPARK; not on a machine of up to
    MOST_THREADS cores, unless Spark Connect gives a session. While a session starts, this process does the first tasks.
    """
    if session is not None and tasks and is_master_given():
        yield from _run_in_spark(tasks, function, session())
        return
    if session is None or _is_little(size):
        yield from _run_in_threads(tasks, function)
        return
    results: list[Result] = []
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(session)
        wait([starting], SECONDS_OF_A_READY_SESSION)
        while not starting.done() and len(results) < len(tasks):
            results.append(function(tasks[len(results)]))
        spark = starting.result()
    yield from results
    rest = tasks[len(results) :]
    if rest:
        yield from _run_in_spark(rest, function, spark)


def _run_in_threads(tasks: Sequence[Task], function: Callable[[Task], Result]) -> Iterator[Result]:
    count = min(MOST_THREADS, cores(), len(tasks))
    if count <= 1:
        yield from map(function, tasks)
        return
    own = threading.local()

    def start() -> None:
        own.function = deepcopy(function)

    threads = ThreadPoolExecutor(count, initializer=start)
    try:
        yield from threads.map(lambda task: own.function(task), tasks)
    finally:
        threads.shutdown(cancel_futures=True)


def run_on_rows(rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[Result]]) -> list[Result]:
    """All that ``function`` yields on Spark's workers for the batches of each partition, in any order."""
    try:
        pickled = partial(_pickled, function=function)
        results = rows.mapInArrow(pickled, "result binary").toArrow()["result"].to_pylist()
    except Exception as error:
        if _follows_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    # The results were pickled by this program's own workers.
    return [pickle.loads(result) for result in results]  # noqa: S301


def _follows_interrupt(error: BaseException) -> bool:
    """Whether an interrupt is behind an error: Spark then cancels its jobs, and may tell only that."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _follows_interrupt(before))


def is_master_given() -> bool:
    """Whether spark-submit runs this process, or spark-submit.sh was given a --master for this machine."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in given_spark_options()


def place_text(in_spark: bool) -> str:
    """Where tasks ran, and why. ``in_spark``: whether they called for a session."""
    if in_spark:
        return f"on Spark's workers: {'a master was given' if is_master_given() else 'there was much to read'}"
    threads = counted(min(MOST_THREADS, cores()), "thread")
    why = "Spark has no more cores here" if cores() <= MOST_THREADS else "there was little to read"
    return f"in this process, in up to {threads}: {why}; --master gives it to Spark"


def is_session_given() -> bool:
    """Whether spark-submit or Spark Connect brings the session."""
    return not os.environ.keys().isdisjoint({"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"})


def cores() -> int:
    """The number of cores that this process may use. Not every system knows it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_little(size: int) -> bool:
    pyspark = sys.modules.get("pyspark.sql")
    active = pyspark.SparkSession.getActiveSession() if pyspark is not None else None
    if active is None and not is_session_given():
        return cores() <= MOST_THREADS or size <= LITTLE_WITHOUT_SPARK
    return size <= LITTLE or (active is not None and cores() <= MOST_THREADS and _is_local(active))


def _is_local(spark: SparkSession) -> bool:
    from pyspark.sql.utils import is_remote

    return not is_remote() and (spark.conf.get("spark.master") or "").startswith("local")


def _run_in_spark(tasks: Sequence[Task], function: Callable[[Task], Result], spark: SparkSession) -> list[Result]:
    indices = spark.range(0, len(tasks), 1, len(tasks))
    results = dict(run_on_rows(indices, partial(_numbered, tasks=tuple(tasks), function=function)))
    return [results[index] for index in range(len(tasks))]


def _numbered(
    batches: Iterator[pa.RecordBatch], tasks: Sequence[Task], function: Callable[[Task], Result]
) -> Iterator[tuple[int, Result]]:
    """The results of the tasks whose indices are in ``batches``, each with its index."""
    for batch in batches:
        for index in batch["id"].to_pylist():
            yield index, function(tasks[index])


def _pickled(
    batches: Iterator[pa.RecordBatch], function: Callable[[Iterator[pa.RecordBatch]], Iterator[Result]]
) -> Iterator[pa.RecordBatch]:
    for result in function(batches):
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})
