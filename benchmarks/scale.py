"""How the time and the memory of deliver grow with the messages, from Delta to Delta.

    python -m benchmarks.scale [--millions 2 5 10 20] [--groups 1000] [--rounds 3] [--output DIR]

Each number of messages has a process of its own. Peak memory is that of all processes together, shared pages
counted once. Writes scale.json and scale.png.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import ParamSpec, TypeVar

from benchmarks import workload
from benchmarks.deliver import generate, new_run, subscribe
from benchmarks.peak_memory import peak_memory
from benchmarks.report import FOLDER, write
from jobs.cli.session import spark_session
from jobs.deliver import deliver

P = ParamSpec("P")
T = TypeVar("T")


def prepare(folder: Path, messages: int, groups: int) -> None:
    spark = spark_session("mqsieve benchmark of scale")
    generate(spark, folder, messages)
    subscribe(spark, folder, workload.selective_subscriptions(groups, 1))


def measure(folder: Path, messages: int, rounds: int) -> dict[str, float]:
    """The median of ``rounds``, after one to warm up."""
    with peak_memory() as peak:
        spark = spark_session("mqsieve benchmark of scale")
        seconds = []
        for _ in range(rounds + 1):
            begin = perf_counter()
            deliver(new_run(spark, folder))
            seconds.append(perf_counter() - begin)
    taken = median(seconds[1:])
    return {
        "seconds": round(taken, 2),
        "messages_per_second": round(messages / taken),
        "peak_mib": round(peak.mib),
    }


def in_a_process(step: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """A process that ends with its JVM."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(step, *arguments, **options).result()


def table(results: dict[int, dict[str, float]]) -> str:
    """Markdown."""
    lines = ["| million messages | seconds | million messages/s | peak GiB |", "|---|---|---|---|"]
    for messages, of in results.items():
        speed, peak = of["messages_per_second"] / 1e6, of["peak_mib"] / 1024
        lines.append(f"| {messages / 1e6:g} | {of['seconds']} | {speed:.2f} | {peak:.2f} |")
    return "\n".join(lines)


def draw(results: dict[int, dict[str, float]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.plot([n / 1e6 for n in results], [of["seconds"] for of in results.values()], marker="o")
    axes.set(xlabel="million messages", ylabel="seconds", title="deliver, from Delta to Delta", xlim=0, ylim=0)
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=FOLDER)
    options = parser.parse_args()
    results = {}
    for messages in (million * 1_000_000 for million in options.millions):
        with tempfile.TemporaryDirectory() as folder:
            in_a_process(prepare, Path(folder), messages, options.groups)
            results[messages] = in_a_process(measure, Path(folder), messages, options.rounds)
    write(options.output, "scale", {"groups": options.groups, "rounds": options.rounds, "messages": results})
    draw(results, options.output / "scale.png")
    print(table(results))


if __name__ == "__main__":
    main()
