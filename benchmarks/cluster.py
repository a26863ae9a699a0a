"""A night of many groups on a standalone cluster, with a small limit of results; and what the driver keeps of tasks.

    python -m benchmarks.cluster [--messages 9000000] [--groups 10000] [--max-result-size 64m] [--tasks 10000]
                                 [--folder DIR] [--output DIR]

- night: nightly on a master with two workers of a core each, all on this machine;
- simulated: as many tasks on the same workers, each of which returns the result of one task of a night, which the
  driver adds (benchmarks/simulated_tasks.py): memory of its Python and CPU seconds on the way.

``driver_mib`` is the most memory of the driver's JVM and Python together. Writes cluster.json.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa

from benchmarks.broker_store import write_store
from benchmarks.night_files import night_options, write_night_files
from benchmarks.peak_memory import peak_memory
from benchmarks.processes import ROOT
from benchmarks.report import FOLDER, write
from jobs import nightly
from jobs.cli.session import code_archives, delta_jars
from jobs.night import log
from jobs.night.tasks import RangeResult
from schemas.spark_tasks import run_tasks
from tests.cluster.processes import LOCALHOST, SPARK_HOME, standalone_cluster

WORKERS = 2
MESSAGES_OF_A_TASK = 400_000
"""As many as 128 MiB of log have."""


class Submitted(NamedTuple):
    """What a program wrote, how long it ran, and the most memory of its driver."""

    lines: list[str]
    seconds: int
    driver_mib: int


def submit(master: str, max_result_size: str, program: str, *arguments: object) -> Submitted:
    """Runs a program of this project with spark-submit. Raises AssertionError if it fails."""
    code, jars = code_archives(), delta_jars()
    command = [
        SPARK_HOME / "bin" / "spark-submit", "--master", master, "--properties-file", ROOT / "conf/cluster.conf",
        "--jars", ",".join(jar.as_uri() for jar in jars), "--archives", ",".join(code), "--executor-memory", "1g",
        "--conf", f"spark.driver.maxResultSize={max_result_size}", ROOT / program, *arguments,
    ]  # fmt: skip
    python = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    begin = perf_counter()
    with (
        subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, env=os.environ | LOCALHOST | python
        ) as driver,
        peak_memory(driver.pid) as peak,
    ):
        out, _ = driver.communicate()
    assert driver.returncode == 0, f"{program} ended with {driver.returncode}"
    return Submitted(out.splitlines(), round(perf_counter() - begin), round(peak.mib))


def night_on_a_cluster(folder: Path, master: str, max_result_size: str) -> dict[str, Any]:
    """Seconds and MiB of a night, and the line of its summary that says where it ran."""
    options = night_options(folder, folder / "store", folder / "on_cluster")
    night = submit(master, max_result_size, "jobs/nightly.py", *options)
    where = next(line.strip() for line in night.lines if "Spark's workers" in line)
    return {"seconds": night.seconds, "driver_mib": night.driver_mib, "where": where}


def result_of_a_task(folder: Path) -> bytes:
    """The pickled result of the one task of a night in this process."""
    store = folder / "one_task"
    write_store(store, MESSAGES_OF_A_TASK)
    results: list[RangeResult] = []

    def noted(*given: Any) -> Any:
        for result in run_tasks(*given):
            results.append(pickle.loads(pickle.dumps(result)))  # noqa: S301
            yield result

    with patch.object(log, "run_tasks", noted), redirect_stdout(io.StringIO()):
        nightly.main(night_options(folder, store, folder / "of_one_task"))
    result = results[0].result
    for generations in result.queues.values():
        for progress in generations:
            progress.first = 1  # from 0 on, each copy would be a queue that begins again
    return pickle.dumps(result)


def simulated_tasks(folder: Path, master: str, max_result_size: str, tasks: int) -> dict[str, Any]:
    """Sizes of the result of a task; seconds, MiB and the rows of benchmarks/simulated_tasks.py."""
    pickled = result_of_a_task(folder)
    (folder / "result").write_bytes(pa.compress(pickled, "zstd", asbytes=True))
    driver = submit(master, max_result_size, "benchmarks/simulated_tasks.py", folder / "result", tasks)
    sizes = {"bytes": len(pickled), "compressed_bytes": (folder / "result").stat().st_size}
    rows = [json.loads(line) for line in driver.lines]
    return sizes | {"seconds": driver.seconds, "driver_mib": driver.driver_mib, "rows": rows}


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
        with standalone_cluster(folder / "workers", WORKERS) as master:
            numbers["night"] = night_on_a_cluster(folder, master, options.max_result_size)
            print(f"{numbers['log_bytes'] / 1e6:,.0f} MB of log: {numbers['night']}", flush=True)
            numbers["simulated"] = simulated_tasks(folder, master, options.max_result_size, options.tasks)
            print(f"{options.tasks:,} simulated tasks: {numbers['simulated']}", flush=True)
    write(options.output, "cluster", numbers)


if __name__ == "__main__":
    main()
