"""Counting each group's matches in Spark: a predicate a group in one select, and one Python function for all groups.

    python -m benchmarks.catalyst [--messages 1000000] [--groups 1 10 100 1000] [--rounds 3] [--output DIR]

Both read the same Parquet file, a column of text a property, on all cores, and must count the same. Catalyst's plan of
10,000 predicates does not end in an hour. Writes catalyst.json.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import workload
from benchmarks.report import parser, write
from filtering import sql92
from filtering.matcher import Matcher
from jobs.cli.session import spark_session

PARTS = 8


def by_catalyst(messages: DataFrame, expressions: list[str]) -> list[int]:
    columns = {name: name for name in messages.columns}
    predicates = (sql92.compile(expression).spark_predicate(columns) for expression in expressions)
    (counts,) = messages.select(*(F.expr(f"count_if({predicate})") for predicate in predicates)).collect()
    return list(counts)


def by_matcher(messages: DataFrame, expressions: list[str]) -> list[int]:
    matcher = Matcher([sql92.compile(expression).predicate for expression in expressions])

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = np.zeros(len(expressions), np.int64)
        for batch in batches:
            total += matcher.match(batch).counts()
        yield pa.RecordBatch.from_pydict({"counts": pa.array([total], pa.list_(pa.int64()))})

    parts = messages.mapInArrow(count, "counts array<bigint>").toArrow()["counts"].to_pylist()
    return [sum(group_counts) for group_counts in zip(*parts, strict=True)]


def measure(messages: DataFrame, groups: int, rounds: int) -> dict[str, float]:
    """Medians of seconds, after one round of each to warm up."""
    expressions = workload.selective_subscriptions(groups, 1)
    ways: dict[str, Callable[[DataFrame, list[str]], list[int]]] = {"Catalyst": by_catalyst, "mqsieve": by_matcher}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    counts = []
    for turn in range(rounds + 1):
        for name, way in ways.items():
            begin = perf_counter()
            counts.append(way(messages, expressions))
            if turn:
                seconds[name].append(perf_counter() - begin)
    assert all(each == counts[0] for each in counts), "the two count differently"
    return {name: round(median(taken), 2) for name, taken in seconds.items()}


def main() -> None:
    command_line = parser(__doc__, rounds=3)
    command_line.add_argument("--messages", type=int, default=1_000_000)
    command_line.add_argument("--groups", type=int, nargs="+", default=[1, 10, 100, 1_000])
    options = command_line.parse_args()
    spark = spark_session("mqsieve benchmark of Catalyst")
    results: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in range(PARTS):
            batch = workload.messages(options.messages // PARTS, part)
            pq.write_table(pa.Table.from_batches([batch]), f"{folder}/{part}.parquet")
        for groups in options.groups:
            results[groups] = measure(spark.read.parquet(folder), groups, options.rounds)
            print(f"G={groups:,}: {results[groups]} s", flush=True)
            write(options.output, "catalyst", {"messages": options.messages, "seconds": results})


if __name__ == "__main__":
    main()
