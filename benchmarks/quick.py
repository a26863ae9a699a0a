"""A short measurement of one checkout, a round for each line of input; see benchmarks.compare.

Answers each line with seconds by name, in JSON: the matcher alone, and a small night without Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter

from benchmarks import workload
from benchmarks.broker_store import write_store
from benchmarks.night_files import night_options, write_night_files
from filtering.matcher import Matcher
from filtering.sql92 import compile
from jobs import nightly

MESSAGES, BATCH, GROUPS = 200_000, 16_384, 1_000


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    batch, expressions = workload.messages(BATCH, 1), workload.selective_subscriptions(GROUPS, 1)
    matcher = Matcher([compile(expression).predicate for expression in expressions])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_store(folder / "store", MESSAGES)
        write_night_files(folder, GROUPS, with_bit_map=True)
        command = night_options(folder, folder / "store", folder / "warehouse")
        for _ in sys.stdin:
            shutil.rmtree(folder / "warehouse", ignore_errors=True)
            begin = perf_counter()
            for _ in range(8):
                matcher.match(batch).pairs()
            matched = perf_counter()
            with redirect_stdout(sys.stderr):
                nightly.main(command)
            seconds = {"matcher": matched - begin, "night": perf_counter() - matched}
            print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main()
