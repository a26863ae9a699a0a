"""A short measurement of one checkout, a round for each line of input; see benchmarks.compare.

Answers each line with seconds by name, in JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks import workload
from benchmarks.deliver import generate, new_run, subscribe
from filtering.matcher import Matcher
from filtering.sql92 import compile
from jobs.cli.session import spark_session
from jobs.deliver import deliver

MESSAGES, BATCH, GROUPS = 500_000, 16_384, 1_000


def main() -> None:
    batch, expressions = workload.messages(BATCH, 1), workload.selective_subscriptions(GROUPS, 1)
    matcher = Matcher([compile(expression).predicate for expression in expressions])
    spark = spark_session("mqsieve quick benchmark")
    with tempfile.TemporaryDirectory() as folder:
        generate(spark, Path(folder), MESSAGES)
        subscribe(spark, Path(folder), expressions)
        for _ in sys.stdin:
            begin = perf_counter()
            for _ in range(8):
                matcher.match(batch).pairs()
            matched = perf_counter()
            deliver(new_run(spark, Path(folder)))
            print(json.dumps({"matcher": matched - begin, "deliver": perf_counter() - matched}), flush=True)


if __name__ == "__main__":
    main()
