"""A process that runs a night for each line of input, and answers its seconds and CPU seconds as JSON.

    python -m benchmarks.night_process [--spark | --steps] < lines

A line is a JSON list: the command line of nightly. With --spark, a Spark session runs before the first night. With
--steps, tasks run one after another in this process, and the answers have the seconds of each step.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import redirect_stdout
from time import perf_counter, process_time

from benchmarks.steps import Steps, night_steps
from jobs.cli.application import collect_rarely


def main() -> None:
    collect_rarely()
    answers = os.fdopen(os.dup(1), "w")
    steps = Steps()
    if "--steps" in sys.argv:
        from schemas import spark_tasks

        spark_tasks.MOST_THREADS = 1
        spark_tasks.NEW_SESSION_FROM_BYTES = 1 << 60
        steps = night_steps()
    if "--spark" in sys.argv:
        from jobs.cli.session import spark_session

        spark_session("night")
    from jobs import nightly

    for line in sys.stdin:
        steps.reset()
        begin, used = perf_counter(), process_time()
        with redirect_stdout(sys.stderr):
            nightly.main(json.loads(line))
        taken, used = perf_counter() - begin, process_time() - used
        steps.seconds["other"] = taken - sum(steps.seconds.values())
        gc.collect(0)
        print(json.dumps({"seconds": taken, "cpu": used, "steps": steps.seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
