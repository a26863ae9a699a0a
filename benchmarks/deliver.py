"""deliver, from Delta to Delta, beside what else could do its work, in one run on two cores.

    python -m benchmarks.deliver [--messages 2000000] [--groups 1 10 100 1000 10000] [--rounds 5] [--output DIR]

Everything that the job does is timed: reading the history and the consume queue, compiling, filtering, writing
the deliveries and their statistics. Beside it, in turns:

- RocketMQ: its own filter loop over parsed properties in two processes, no I/O, no output;
- Catalyst: a Spark SQL predicate a group, counted in one select; row UDF: a Python function a row for all groups;
- floor: the job's columns handed to a Python function that does nothing, and written: its result once more;
- scan: the job's columns read by Spark and thrown away.

The slow ones filter fewer messages. All must find the same matches. Writes deliver.json and deliver.png.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType

from benchmarks import commitlog_generator, workload
from benchmarks.commitlog_generator import BROKER, FIRST_STORE_TIMESTAMP, RECORD_SIZE, TOPIC
from benchmarks.filter_bench import FilterBench
from benchmarks.peak_memory import peak_memory
from benchmarks.report import FOLDER, draw_speeds, write
from filtering import sql92
from filtering.broker_config import BrokerConfig
from filtering.delivery.delivery_blocks import ENTRY_COLUMNS
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.sources import parse_subscriptions
from jobs.cli.session import spark_session
from jobs.deliver import deliver
from jobs.dispatch import dispatch
from jobs.run import Run
from schemas import deliveries, subscriptions
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.warehouse import Warehouse

CHECKED_MESSAGES = 1_000
EVALUATIONS = {"RocketMQ": 5e6, "Catalyst": 2e7, "row UDF": 3e5}
MOST_MESSAGES = {"RocketMQ": 500_000, "Catalyst": 1_000_000, "row UDF": 20_000}
MOST_GROUPS = {"Catalyst": 100, "row UDF": 100}  # A turn with 1,000 takes them minutes, whatever the messages.
DELIVER, FLOOR, WRITE, SCAN = "mqsieve deliver", "floor", "write", "scan"


def new_run(spark: SparkSession, folder: Path) -> Run:
    """A run that knows of no other, so that every step does its work."""
    broker = BrokerConfig(broker_name=BROKER, enable_property_filter=True)
    return Run(spark, Warehouse.at(str(folder)), broker, "the benchmark")


def generate(spark: SparkSession, folder: Path, messages: int) -> None:
    """A warehouse with so many messages and their consume queue entries."""
    run = new_run(spark, folder)
    commitlog_generator.write(spark, run.warehouse, messages)
    subscribe(spark, folder, [])
    dispatch(run)


def subscribe(spark: SparkSession, folder: Path, expressions: list[str]) -> None:
    """Makes these, each of a group of its own, all subscriptions."""
    run = new_run(spark, folder)
    event = {"at": FIRST_STORE_TIMESTAMP - 1, "op": "register", "topic": TOPIC, "type": "SQL92"}
    lines = (json.dumps(event | {"group": group_of(i), "expression": text}) for i, text in enumerate(expressions))
    events = parse_subscriptions("\n".join(lines)).events
    subscriptions.replace(spark, run.warehouse, subscription_history(events, run.broker))


def group_of(number: int) -> str:
    return f"GID_{number:05}"


class Contest:
    """Everything that is measured, on one warehouse with one set of subscriptions."""

    def __init__(self, spark: SparkSession, folder: Path, messages: int, expressions: list[str]) -> None:
        self._spark, self._folder, self._messages, self._expressions = spark, folder, messages, expressions
        self._warehouse = Warehouse.at(str(folder))
        self._entries = CONSUMEQUEUE.read(spark, self._warehouse)
        self._loops: list[FilterBench] = []
        subscribe(spark, folder, expressions)

    def messages_of(self, name: str) -> int:
        wanted = EVALUATIONS.get(name, float("inf")) / len(self._expressions)
        most = MOST_MESSAGES.get(name, self._messages)
        return int(min(self._messages, most, max(CHECKED_MESSAGES, wanted)))

    def engines(self) -> dict[str, Callable[[], float]]:
        """By name, what does the work once and tells the seconds."""
        half = self._first(self.messages_of("RocketMQ") // 2)
        self._loops = [FilterBench("rocketmq", half, self._expressions) for _ in range(2)]
        entries, nothing = self._entries.select(*ENTRY_COLUMNS), "nothing int"
        blocks = DELIVERY_BLOCKS.read(self._spark, self._warehouse).cache()
        blocks.count()
        other = str(self._folder / "written")
        every: dict[str, Callable[[], float]] = {
            "RocketMQ": self._two_loops,
            "Catalyst": lambda: _timed(lambda: self._catalyst().collect()),
            "row UDF": lambda: _timed(lambda: self._row_udf().collect()),
            SCAN: lambda: _timed(lambda: entries.write.format("noop").mode("overwrite").save()),
            FLOOR: lambda: _timed(lambda: entries.mapInArrow(_nothing, nothing).count()),
            WRITE: lambda: _timed(lambda: blocks.write.format("delta").mode("overwrite").save(other)),
            DELIVER: lambda: _timed(lambda: deliver(new_run(self._spark, self._folder))),
        }
        groups = len(self._expressions)
        return {name: engine for name, engine in every.items() if groups <= MOST_GROUPS.get(name, groups)}

    def check(self) -> float:
        """Raises AssertionError unless all find the same matches. Returns matches a message."""
        deliver(new_run(self._spark, self._folder))
        number = (F.col("commitlog_offset") / RECORD_SIZE).cast("bigint")
        blocks = DELIVERY_BLOCKS.read(self._spark, self._warehouse)
        of_checked = blocks.where(F.get("commitlog_offset", F.lit(0)) < CHECKED_MESSAGES * RECORD_SIZE)
        pairs = deliveries.pairs(of_checked).where(number < CHECKED_MESSAGES)
        found = {
            row["consumer_group"]: (row["n"], row["s"])
            for row in pairs.groupBy("consumer_group").agg(F.count("*").alias("n"), F.sum(number).alias("s")).collect()
        }
        ours = [found.get(group_of(i), (0, 0)) for i in range(len(self._expressions))]
        loop = FilterBench("rocketmq", self._first(CHECKED_MESSAGES), self._expressions)
        theirs = list(zip(*(column.tolist() for column in loop.check()), strict=True))
        loop.close()
        assert ours == theirs, "deliver finds other messages than RocketMQ"
        counts = [n for n, _ in ours]
        if len(self._expressions) <= min(MOST_GROUPS.values()):
            assert list(*self._catalyst(CHECKED_MESSAGES).collect()) == counts, "Catalyst finds other matches"
            ((called,),) = self._row_udf(CHECKED_MESSAGES).collect()
            assert called == counts, "the row UDF finds other matches"
        return float(sum(counts)) / CHECKED_MESSAGES

    def close(self) -> None:
        for loop in self._loops:
            loop.close()
        self._spark.catalog.clearCache()

    def _two_loops(self) -> float:
        with ThreadPoolExecutor(len(self._loops)) as threads:
            return max(threads.map(FilterBench.seconds, self._loops))

    def _first(self, count: int) -> pa.RecordBatch:
        entries = self._entries.where(F.col("commitlog_offset") < count * RECORD_SIZE)
        rows = entries.select("commitlog_offset", "properties").toArrow().sort_by("commitlog_offset").combine_chunks()
        properties = rows["properties"].combine_chunks()
        names = sorted(pc.unique(properties.keys).to_pylist())
        return pa.record_batch({name: pc.map_lookup(properties, name, "first") for name in names})

    def _sample(self, name: str, count: int | None) -> DataFrame:
        return self._entries.where(F.col("commitlog_offset") < (count or self.messages_of(name)) * RECORD_SIZE)

    def _catalyst(self, count: int | None = None) -> DataFrame:
        predicates = (sql92.compile(expression).spark_predicate() for expression in self._expressions)
        return self._sample("Catalyst", count).select(*(F.expr(f"count_if({predicate})") for predicate in predicates))

    def _row_udf(self, count: int | None = None) -> DataFrame:
        compiled = [sql92.compile(expression) for expression in self._expressions]

        def evaluate(properties: dict[str, str]) -> list[bool]:
            return [each.evaluate(properties) is True for each in compiled]

        matches = F.udf(evaluate, ArrayType(BooleanType()))
        called = self._sample("row UDF", count).select(matches("properties").alias("m"))
        counts = (F.count_if(F.get("m", F.lit(i))) for i in range(len(compiled)))
        return called.select(F.array(*counts))


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from ()


def _timed(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def measure(spark: SparkSession, folder: Path, messages: int, groups: int, rounds: int) -> dict[str, Any]:
    """The medians of ``rounds``, after one to warm up."""
    contest = Contest(spark, folder, messages, workload.selective_subscriptions(groups, 1))
    matches = contest.check()
    engines = contest.engines()
    times: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name, seconds in engines.items():
            taken = seconds()
            if turn:
                times[name].append(taken)
    contest.close()
    size = spark.sql(f"DESCRIBE DETAIL {Warehouse.at(str(folder)).identifier(DELIVERY_BLOCKS.name)}").first()
    return {
        "matches_per_message": round(matches, 1),
        "bytes_per_message": round(size["sizeInBytes"] / messages, 2) if size else None,
        "engines": {name: _speed(contest.messages_of(name), taken) for name, taken in times.items()},
    }


def _speed(messages: int, seconds: list[float]) -> dict[str, float]:
    return {
        "messages": messages,
        "seconds": round(median(seconds), 3),
        "fastest": round(min(seconds), 3),
        "slowest": round(max(seconds), 3),
        "messages_per_second": round(messages / median(seconds)),
    }


def table(results: dict[int, dict[str, Any]]) -> str:
    """Markdown: thousand messages a second, and what the job is to the others."""

    def line(name: str, cells: Iterator[str]) -> str:
        return f"| {name} | " + " | ".join(cells) + " |"

    def speed(groups: int, name: str) -> float:
        return float(results[groups]["engines"].get(name, {}).get("messages_per_second", np.nan))

    names = [name for name in next(iter(results.values()))["engines"] if name != WRITE]
    lines = [line("thousand messages/s", (f"G={groups:,}" for groups in results)), "|---|" + "---|" * len(results)]
    for name in names:
        lines.append(line(name, (f"{speed(groups, name) / 1e3:,.4g}" for groups in results)))
    for name in ("RocketMQ", "Catalyst", "row UDF"):
        lines.append(
            line(f"mqsieve / {name}", (f"{speed(groups, DELIVER) / speed(groups, name):,.3g} ×" for groups in results))
        )
    seconds = [{name: each["seconds"] for name, each in of["engines"].items()} for of in results.values()]
    lines.append(
        line(
            "mqsieve's time / floor and write",
            (f"{each[DELIVER] / (each[FLOOR] + each[WRITE]):.2f}" for each in seconds),
        )
    )
    lines.append(line("bytes a message on disk", (f"{of['bytes_per_message']:,}" for of in results.values())))
    lines.append(line("matches a message", (f"{of['matches_per_message']:,}" for of in results.values())))
    return "\n".join(lines).replace("nan ×", "").replace("nan", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 10, 100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=FOLDER)
    options = parser.parse_args()
    spark = spark_session("mqsieve benchmark of deliver")
    spark.conf.set("spark.sql.inMemoryColumnarStorage.batchSize", 8)  # A block of 10,000 groups has 10 MB.
    with tempfile.TemporaryDirectory() as folder, peak_memory() as peak:
        generate(spark, Path(folder), options.messages)
        results: dict[int, dict[str, Any]] = {}
        numbers = {"rounds": options.rounds, "messages": options.messages, "groups": results}
        for groups in options.groups:
            results[groups] = measure(spark, Path(folder), options.messages, groups, options.rounds)
            write(options.output, "deliver", numbers)
    results = dict(sorted(results.items()))
    write(options.output, "deliver", numbers | {"groups": results, "peak_mib": round(peak.mib)})
    names = (name for name in next(iter(results.values()))["engines"] if name != WRITE)
    speeds = {
        name: {groups: of["engines"].get(name, {}).get("messages_per_second") for groups, of in results.items()}
        for name in names
    }
    draw_speeds(options.output / "deliver.png", "deliver, from Delta to Delta", "two cores", speeds)
    print(table(results))


if __name__ == "__main__":
    main()
