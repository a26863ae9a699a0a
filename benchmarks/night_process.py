"""A process that runs a night for each line of input, and answers seconds by step, and CPU seconds of it, as JSON.

    python -m benchmarks.night_process [--spark | --in-process] < lines

A line is a JSON list: the command line of nightly. With --spark, a Spark session runs before the first night. With
--in-process, tasks run in this process, whatever their size.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from time import perf_counter, process_time

from benchmarks.steps import night_steps


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    if "--in-process" in sys.argv:
        from schemas import spark_tasks

        spark_tasks.LITTLE_WITHOUT_SPARK = 1 << 60
    if "--spark" in sys.argv:
        from jobs.cli.session import spark_session

        spark_session("night")
    steps = night_steps()
    from jobs import nightly

    for line in sys.stdin:
        steps.reset()
        begin, used = perf_counter(), process_time()
        with redirect_stdout(sys.stderr):
            nightly.main(json.loads(line))
        taken, used = perf_counter() - begin, process_time() - used
        steps.seconds["other"] = taken - sum(steps.seconds.values())
        print(json.dumps({"seconds": taken, "cpu": used, "steps": steps.seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
