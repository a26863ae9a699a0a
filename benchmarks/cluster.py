"""A night of many groups on a standalone cluster, with a small limit of results; and what the driver keeps of tasks.

    python -m benchmarks.cluster [--messages 9000000] [--groups 10000] [--max-result-size 64m] [--tasks 10000]
                                 [--folder DIR] [--output DIR]

- night: nightly on a master with two workers of a core each, all on this machine. ``driver_mib`` is the most memory of
  the driver's JVM and Python together;
- merge: the result of one task is added as often as there are simulated tasks, in a process without Spark: its
  compressed size, the driver's memory and CPU seconds on the way.

Writes cluster.json.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.broker_store import write_store
from benchmarks.night_files import night_options, write_night_files
from benchmarks.peak_memory import peak_memory, present_mib
from benchmarks.processes import ROOT
from benchmarks.report import FOLDER, write
from jobs import nightly
from jobs.cli.cluster_files import code_archives
from jobs.cli.session import delta_jars
from jobs.night import log
from jobs.night.tasks import RangeResult, TaskResult
from schemas.spark_tasks import run_tasks
from tests.cluster.processes import LOCALHOST, SPARK_HOME, standalone_cluster

WORKERS = 2
MESSAGES_OF_A_TASK = 400_000
"""As many as 128 MiB of log have."""


def night_on_a_cluster(folder: Path, store: Path, max_result_size: str) -> dict[str, Any]:
    """Seconds and MiB of a night, and the line of its summary that says where it ran."""
    code, jars = code_archives(), delta_jars()
    with standalone_cluster(folder / "workers", WORKERS) as master:
        command = [
            SPARK_HOME / "bin" / "spark-submit", "--master", master, "--properties-file", ROOT / "conf/cluster.conf",
            "--jars", ",".join(jar.as_uri() for jar in jars), "--archives", ",".join(code), "--executor-memory", "1g",
            "--conf", f"spark.driver.maxResultSize={max_result_size}", ROOT / "jobs/nightly.py",
            *night_options(folder, store, folder / "on_cluster"),
        ]  # fmt: skip
        python = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        begin = perf_counter()
        with (
            subprocess.Popen(
                list(map(str, command)), stdout=subprocess.PIPE, text=True, env=os.environ | LOCALHOST | python
            ) as night,
            peak_memory(night.pid) as peak,
        ):
            out, _ = night.communicate()
        assert night.returncode == 0, f"the night ended with {night.returncode}"
        where = next(line.strip() for line in out.splitlines() if "Spark's workers" in line)
        return {"seconds": round(perf_counter() - begin), "driver_mib": round(peak.mib), "where": where}


def result_of_a_task(folder: Path) -> TaskResult:
    """The result of the one task of a night in this process."""
    store = folder / "one_task"
    write_store(store, MESSAGES_OF_A_TASK)
    results: list[RangeResult] = []

    def noted(*given: Any) -> Any:
        for result in run_tasks(*given):
            results.append(pickle.loads(pickle.dumps(result)))  # noqa: S301
            yield result

    with patch.object(log, "run_tasks", noted):
        nightly.main(night_options(folder, store, folder / "of_one_task"))
    return results[0].result


def merge(result: TaskResult, tasks: int) -> dict[str, Any]:
    """Adds copies of a result, as the driver does with those of tasks. Each copy has names of files of its own."""
    for of_queue in result.queues.values():
        for progress in of_queue:
            progress.first = 1  # from 0 on, each copy would be a queue that begins again
    pickled = pickle.dumps(result)
    compressed = pa.compress(pickled, "zstd", asbytes=True)
    total, begin, found = TaskResult(), process_time(), []
    for number in range(1, tasks + 1):
        one: TaskResult = pickle.loads(pa.decompress(compressed, len(pickled), "zstd", asbytes=True))  # noqa: S301
        for name, files in one.files.items():
            one.files[name] = [replace(file, path=f"part-{uuid.uuid4()}.parquet") for file in files]
        total.add(one)
        if number in {1, 10, 100, 1_000, tasks}:
            row = {"tasks": number, "mib": present_mib(os.getpid()), "cpu_seconds": round(process_time() - begin, 2)}
            found.append(row)
            print(f"{number:,} tasks: {row['mib']} MiB, {row['cpu_seconds']} s", flush=True)
    return {"bytes": len(pickled), "compressed_bytes": len(compressed), "merged": found}


def main() -> None:
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--output", type=Path, default=FOLDER, metavar="DIR")
    command_line.add_argument("--messages", type=int, default=9_000_000)
    command_line.add_argument("--groups", type=int, default=10_000)
    command_line.add_argument("--max-result-size", default="64m")
    command_line.add_argument("--tasks", type=int, default=10_000)
    command_line.add_argument("--folder", type=Path, help="where log and tables go for a while; default: temporary")
    options = command_line.parse_args()
    numbers: dict[str, Any] = {"groups": options.groups, "max_result_size": options.max_result_size}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_night_files(folder, options.groups, True)
        numbers["log_bytes"] = write_store(folder / "store", options.messages).size
        numbers["night"] = night_on_a_cluster(folder, folder / "store", options.max_result_size)
        print(f"{numbers['log_bytes'] / 1e6:,.0f} MB of log: {numbers['night']}", flush=True)
        numbers["merge"] = merge(result_of_a_task(folder), options.tasks)
    write(options.output, "cluster", numbers)


if __name__ == "__main__":
    main()
