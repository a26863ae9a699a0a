"""The pipeline in Spark SQL (schemas/spark_pipeline.py), beside the night whose deliveries it computes once more.

    python -m benchmarks.spark_pipeline [--messages 20000] [--groups 1 10 100] [--rounds 1] [--output DIR]

Seconds of one process with a Spark session: `nightly` into a new warehouse, and counting the deliveries of Spark SQL
for each group, the medians of rounds after one night to warm up. Both must count the same. Writes spark_pipeline.json.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from time import perf_counter

from pyspark.sql import SparkSession

from benchmarks.broker_store import write_store
from benchmarks.night_files import night_options, write_night_files
from benchmarks.report import parser, write
from jobs import nightly
from jobs.cli.session import spark_session
from schemas import deliveries, spark_pipeline
from schemas.delta.warehouse import Warehouse


def measure(spark: SparkSession, folder: Path, groups: int, rounds: int) -> dict[str, float]:
    """The medians of seconds."""
    write_night_files(folder, groups, with_bit_map=True)
    seconds: dict[str, list[float]] = {"nightly": [], "Spark SQL": []}
    for turn in range(rounds):
        warehouse = folder / f"{groups}_{turn}"
        begin = perf_counter()
        with redirect_stdout(io.StringIO()):
            nightly.main(night_options(folder, folder / "store", warehouse))
        middle = perf_counter()
        opened = Warehouse.at(str(warehouse))
        computed = spark_pipeline.deliveries(spark, opened).groupBy("consumer_group").count().collect()
        end = perf_counter()
        stored = deliveries.read(spark, opened).groupBy("consumer_group").count().collect()
        assert sorted(computed) == sorted(stored), "the two count differently"
        seconds["nightly"].append(middle - begin)
        seconds["Spark SQL"].append(end - middle)
        shutil.rmtree(warehouse)
    return {name: round(median(taken), 2) for name, taken in seconds.items()}


def main() -> None:
    command_line = parser(__doc__, rounds=1)
    command_line.add_argument("--messages", type=int, default=20_000)
    command_line.add_argument("--groups", type=int, nargs="+", default=[1, 10, 100])
    options = command_line.parse_args()
    spark = spark_session("mqsieve benchmark of the pipeline in Spark SQL")
    results: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "store", options.messages)
        measure(spark, Path(folder), 1, 1)
        for groups in options.groups:
            results[groups] = measure(spark, Path(folder), groups, options.rounds)
            print(f"G={groups:,}: {results[groups]} s", flush=True)
            write(options.output, "spark_pipeline", {"messages": options.messages, "seconds": results})


if __name__ == "__main__":
    main()
