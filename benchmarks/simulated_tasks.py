"""The driver of many simulated tasks, which benchmarks.cluster submits.

    spark-submit … benchmarks/simulated_tasks.py RESULT TASKS

Each task returns a copy of the compressed, pickled TaskResult in the file RESULT, with names of files of its own. The
driver adds the copies, as a night does. Writes lines of JSON: tasks, MiB of its Python, its CPU seconds.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

import pyarrow as pa

from benchmarks.peak_memory import present_mib
from jobs.cli.session import spark_session
from jobs.night.tasks import TaskResult
from schemas.spark_tasks import run_tasks


def copied(_: int, compressed: bytes) -> TaskResult:
    with pa.input_stream(pa.py_buffer(compressed), compression="zstd") as stream:
        result: TaskResult = pickle.loads(stream.read())  # noqa: S301
    for name, files in result.files.items():
        result.files[name] = [replace(file, path=f"part-{uuid.uuid4()}.parquet") for file in files]
    return result


def main() -> None:
    compressed, tasks = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    spark = spark_session("mqsieve simulated tasks")
    total, begin = TaskResult(), process_time()
    results = run_tasks(range(tasks), partial(copied, compressed=compressed), 0, lambda: spark)
    for number, result in enumerate(results, start=1):
        total.add(result)
        if number in {1, 10, 100, 1_000, tasks}:
            row = {"tasks": number, "mib": present_mib(os.getpid()), "cpu_seconds": round(process_time() - begin, 2)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
