"""Runs tasks in threads of the driver, or on Spark's workers if a master is given or there is much to do.

In Spark, a job has some of the tasks, and two jobs run at a time: then no core waits for the last task of a job, and
the driver gets results while tasks run. A job has as many tasks as return RESULT_BYTES together, by the largest result
so far. So spark.driver.maxResultSize and the driver's memory do not limit the number of tasks. Results are compressed:
most bytes of counts are zeros. A task that fails is repeated alone, by Spark (spark.task.maxFailures).
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from filtering.counted import counted
from schemas.errors import given_spark_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

Session: TypeAlias = "Callable[[], SparkSession]"
"""Returns the Spark session, and starts it if needed."""
SPARK_FROM_BYTES = 512 << 20
"""Bytes of a log that the driver filters in about the time that a Spark job takes to start its workers."""

NEW_SESSION_FROM_BYTES = 8 << 30
"""Bytes of a log that the driver filters in about the time that Spark takes with the start of a session."""

MOST_THREADS = 4
"""A task holds Python's interpreter lock for a quarter of its time."""

SECONDS_OF_A_READY_SESSION = 0.1
"""A session that already runs is returned in less time."""

RESULT_BYTES = 32 << 20
"""Compressed bytes that the tasks of a Spark job return together, if none returns more than those before."""

FIRST_TASKS = 32
"""Tasks of a Spark job before any result is known."""

MOST_TASKS = 512
"""Tasks of a Spark job. A cluster of more cores than two jobs have tasks would not be busy."""

JOBS_AT_ONCE = 2


class Worker(NamedTuple):
    """A process that runs tasks. ``executor``: the process that started it, which on Spark each executor has one of."""

    host: str
    executor: int
    process: int


def this_worker() -> Worker:
    return Worker(socket.gethostname(), os.getppid(), os.getpid())


def run_tasks(
    tasks: Sequence[Task], function: Callable[[Task], Result], size: int, session: Session | None
) -> Iterator[Result]:
    """Yields the result of each task, in order. ``function`` is copied for each thread, or pickled for Spark's workers.

    ``size``: bytes that all tasks read. With a master, Spark does all tasks. Without one, ``session`` is called if that
    is more than SPARK_FROM_BYTES or, where no session runs yet, more than NEW_SESSION_FROM_BYTES; not on a machine of
    up to MOST_THREADS cores, unless Spark Connect gives a session. While a session starts, this process does the first
    tasks.
    """
    if session is not None and tasks and is_master_given():
        yield from _run_in_spark(tasks, function, session())
        return
    if session is None or _is_little(size):
        yield from run_in_threads(tasks, function)
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


def run_in_threads(tasks: Sequence[Task], function: Callable[[Task], Result]) -> Iterator[Result]:
    """Yields the result of each task, in order, by threads of this process. ``function`` is copied for each thread."""
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


def run_on_rows(rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[Result]]) -> Iterator[Result]:
    """All that ``function`` yields on Spark's workers for the batches of each partition, in any order.

    Spark has run when this returns; results are decoded one at a time.
    """
    return _decoded(_run_job(rows, function))


def _run_job(rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[object]]) -> pa.ChunkedArray:
    """The compressed results of a Spark job."""
    try:
        return rows.mapInArrow(partial(_encoded, function=function), "result binary").toArrow()["result"]
    except Exception as error:
        if _follows_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _encoded(
    batches: Iterator[pa.RecordBatch], function: Callable[[Iterator[pa.RecordBatch]], Iterator[object]]
) -> Iterator[pa.RecordBatch]:
    for result in function(batches):
        encoded = pa.compress(pickle.dumps(result), "zstd", asbytes=True)
        yield pa.RecordBatch.from_pydict({"result": [encoded]})


def _decoded(results: Iterable[pa.BinaryScalar]) -> Iterator[Result]:
    for result in results:
        with pa.input_stream(result.as_buffer(), compression="zstd") as stream:
            # The results were pickled by this program's own workers.
            yield pickle.loads(stream.read())  # noqa: S301


def _follows_interrupt(error: BaseException) -> bool:
    """Whether an interrupt is behind an error: Spark then cancels its jobs, and may tell only that."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _follows_interrupt(before))


def is_master_given() -> bool:
    """Whether spark-submit runs this process, or spark-submit.sh was given a --master for this machine."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in given_spark_options()


def place_text(in_spark: bool, workers: Collection[Worker] = ()) -> str:
    """Where tasks ran, and why.

    ``in_spark``: whether they called for a session. ``workers``: those that ran tasks, as far as these say it.
    """
    if in_spark:
        spark_workers = [worker for worker in workers if worker != this_worker()]
        executors = {(worker.host, worker.executor) for worker in spark_workers}
        count = f"{counted(len(spark_workers), 'Python worker')} in {counted(len(executors), 'executor')}"
        why = "a master was given" if is_master_given() else "there was much to read"
        return f"on Spark's workers{f' ({count})' if spark_workers else ''}: {why}"
    threads = counted(min(MOST_THREADS, cores()), "thread")
    why = "Spark would have the same cores" if cores() <= MOST_THREADS else "there was little to read"
    return f"in this process, in up to {threads}: {why}; with --master it runs on Spark"


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
        return cores() <= MOST_THREADS or size <= NEW_SESSION_FROM_BYTES
    return size <= SPARK_FROM_BYTES or (active is not None and cores() <= MOST_THREADS and _is_local(active))


def _is_local(spark: SparkSession) -> bool:
    from pyspark.sql.utils import is_remote

    return not is_remote() and (spark.conf.get("spark.master") or "").startswith("local")


def _run_in_spark(tasks: Sequence[Task], function: Callable[[Task], Result], spark: SparkSession) -> Iterator[Result]:
    threads = ThreadPoolExecutor(JOBS_AT_ONCE)
    jobs: deque[Future[pa.ChunkedArray]] = deque()
    begun, count, largest = 0, FIRST_TASKS, 1
    results: pa.ChunkedArray | tuple[()] = ()
    try:
        while True:
            while begun < len(tasks) and len(jobs) < JOBS_AT_ONCE:
                some = tasks[begun : begun + count]
                jobs.append(threads.submit(_run_some, some, function, spark))
                begun += len(some)
            yield from _in_order(_decoded(results))
            if not jobs:
                return
            results = jobs[0].result()
            jobs.popleft()
            largest = max(largest, pc.max(pc.binary_length(results)).as_py())
            count = min(max(1, RESULT_BYTES // largest), MOST_TASKS)
    finally:
        if jobs:
            with suppress(Exception):  # what ended this early is raised already
                spark.interruptAll()  # A tag ends only jobs of the thread that set it.
        threads.shutdown(cancel_futures=True)


def _run_some(tasks: Sequence[Task], function: Callable[[Task], Result], spark: SparkSession) -> pa.ChunkedArray:
    indices = spark.range(0, len(tasks), 1, len(tasks))
    return _run_job(indices, partial(_numbered, tasks=tuple(tasks), function=function))


def _in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """The results by number. Spark returns them in this order, but does not promise it."""
    early: dict[int, Result] = {}
    expected = 0
    for index, result in results:
        early[index] = result
        while expected in early:
            yield early.pop(expected)
            expected += 1


def _numbered(
    batches: Iterator[pa.RecordBatch], tasks: Sequence[Task], function: Callable[[Task], Result]
) -> Iterator[tuple[int, Result]]:
    """The results of the tasks whose indices are in ``batches``, each with its index."""
    for batch in batches:
        for index in batch["id"].to_pylist():
            yield index, function(tasks[index])
