"""What a transpiled predicate costs Catalyst beside one written by hand, on the same rows in one run.

    python -m benchmarks.spark_predicate [--messages 5000000] [--rounds 5] [--output DIR]

Rows are messages with eight properties in a map column, in Parquet. Both predicates must count the same.
Times are seconds, the median of rounds taken in turns after one for warming up; the hand-written predicate
casts without a guard, so it would fail, or count other messages, on text that is no number. Writes
spark_predicate.json.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time

from pyspark.sql import DataFrame, SparkSession

from benchmarks.report import parser, write
from filtering import sql92
from jobs.cli.session import spark_session

MESSAGES = """map(
    'UNIQ_KEY', hex(id * 7919), 'TAGS', 'TagA',
    'region', element_at(array('x', 'cn-hangzhou', 'us-east-1', 'eu-west-2', 'ap-southeast-1'), int(id * 31 % 5) + 1),
    'qty', string(id * 17 % 1000), 'userId', string(id * 7 % 1000000), 'price', string((id * 13 % 10000) / 100),
    'level', 'gold', 'flag', 'true') AS properties"""
REGION, PRICE, QTY = "properties['region']", "properties['price']", "properties['qty']"
BY_HAND = {
    "region = 'x' AND price > 50.0": f"{REGION} = 'x' AND cast({PRICE} AS double) > 50.0",
    "region IN ('x', 'us-east-1') AND qty > 500": f"{REGION} IN ('x', 'us-east-1') AND cast({QTY} AS int) > 500",
    "price > 50.0": f"cast({PRICE} AS double) > 50.0",
    "price BETWEEN 20.0 AND 50.0": f"cast({PRICE} AS double) BETWEEN 20.0 AND 50.0",
    "qty > 500": f"cast({QTY} AS int) > 500",
    "region = 'x' OR price > 50.0": f"{REGION} = 'x' OR cast({PRICE} AS double) > 50.0",
}


def main() -> None:
    command_line = parser(__doc__, rounds=5)
    command_line.add_argument("--messages", type=int, default=5_000_000)
    options = command_line.parse_args()
    spark = spark_session("mqsieve benchmark of predicates")
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/messages"
        spark.range(options.messages).selectExpr(MESSAGES).repartition(4).write.parquet(path)
        results = []
        for expression, by_hand in BY_HAND.items():
            results.append(_compared(spark, path, expression, by_hand, options.rounds))
            print(json.dumps(results[-1]), flush=True)
    numbers = {"messages": options.messages, "rounds": options.rounds, "predicates": results}
    write(options.output, "spark_predicate", numbers)


def _compared(spark: SparkSession, path: str, expression: str, by_hand: str, rounds: int) -> dict[str, object]:
    messages = spark.read.parquet(path)
    predicates = {"by_hand": by_hand, "transpiled": sql92.compile(expression).spark_predicate()}
    times: dict[str, list[float]] = {name: [] for name in predicates}
    counts = set()
    for _ in range(rounds + 1):
        for name, predicate in predicates.items():
            count, seconds = _counted(messages, predicate)
            counts.add(count)
            times[name].append(seconds)
    if len(counts) != 1:
        raise SystemExit(f"{expression}: the predicates count differently: {sorted(counts)}")
    medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    return {
        "expression": expression,
        "matches": counts.pop(),
        **{name: round(median, 3) for name, median in medians.items()},
        "ratio": round(medians["transpiled"] / medians["by_hand"], 3),
    }


def _counted(messages: DataFrame, predicate: str) -> tuple[int, float]:
    start = time.perf_counter()
    count = messages.where(predicate).count()
    return count, time.perf_counter() - start


if __name__ == "__main__":
    main()
