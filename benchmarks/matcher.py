"""Which groups get which messages, in one process and one thread: ours and others, in one run.

    python -m benchmarks.matcher [--groups 1 10 100 1000 10000] [--rounds 5] [--output benchmarks/results]

RocketMQ's own filter loop (evaluate, and set the bits of the filter bit map) and AWS event-ruler run over parsed
properties and put out no pairs; DuckDB counts the matches of each group; Polars and ours start from columns of text,
and put out the pairs. Rounds alternate between all of them, pinned to one core, after at least three seconds of each to
warm up. Each must find the pairs that ours finds in the messages that it is measured on, which for the slow ones are
fewer; DuckDB as many.
Writes matcher.json and matcher.png. Needs Java 17, Maven, and the packages of the extra ``bench``.
"""

import os
from collections.abc import Iterable
from multiprocessing import get_context
from statistics import mean, median

import numpy as np

from benchmarks import workload
from benchmarks.filter_bench import FilterBench
from benchmarks.matcher_engines import BATCH_ROWS, ENGINES, Engine, Ours
from benchmarks.peak_memory import greatest_mib
from benchmarks.report import draw_speeds, parser, write

FEWEST_ROWS = 2_000
WARM_UP = 3.0
"""Seconds, and at least two passes over the messages."""
ROUND = 1.0
"""Seconds of passes: after another engine, caches and freed memory are cold, which counts little in a round."""
MOST_GROUPS = {"event-ruler": 1_000}  # It takes more than five minutes to add the rules of 10,000.
EVALUATIONS = {
    "mqsieve": 4e8,
    "Polars": 3e8,
    "DuckDB": 2e7,
    "RocketMQ": 4e6,
    "event-ruler": 2e6,
}
MOST_ROWS = 262_144


def rows_of(name: str, groups: int) -> int:
    """So many messages that a pass takes up to about a second, but never fewer than FEWEST_ROWS."""
    return int(min(MOST_ROWS, max(FEWEST_ROWS, EVALUATIONS[name] / groups)))


def peak_of(name: str, groups: int) -> int:
    """MiB of a fresh process that runs once."""
    before = ENGINES[name](workload.messages(rows_of(name, groups), 1), workload.subscriptions(groups, 1))
    before.seconds()
    return greatest_mib(os.getpid())


def measure(groups: int, rounds: int) -> dict[str, dict[str, float]]:
    expressions = workload.subscriptions(groups, 1)
    messages = workload.messages(MOST_ROWS, 1)
    engines = {
        name: make(messages.slice(0, rows_of(name, groups)), expressions)
        for name, make in ENGINES.items()
        if groups <= MOST_GROUPS.get(name, groups)
    }
    matched = 0
    for name, runner in engines.items():
        counts, sums = runner.check()
        expected, expected_sums = Ours(messages.slice(0, rows_of(name, groups)), expressions).check()
        assert (counts == expected).all(), f"{name} finds other matches than mqsieve"
        assert name == "DuckDB" or (sums == expected_sums).all(), f"{name} finds other messages than mqsieve"
        matched = int(counts.sum())
    for runner in engines.values():
        _passes(runner, WARM_UP, fewest=2)
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, runner in engines.items():
            times[name].append(mean(_passes(runner, ROUND)))
    result: dict[str, dict[str, float]] = {}
    for name, runner in engines.items():
        rows = rows_of(name, groups)
        if isinstance(runner, FilterBench):
            peak = runner.peak()
            runner.close()
        else:
            with get_context("spawn").Pool(1) as pool:
                peak = pool.apply(peak_of, (name, groups))
        result[name] = {
            "messages": rows,
            "messages_per_second": round(rows / median(times[name])),
            "slowest": round(rows / max(times[name])),
            "fastest": round(rows / min(times[name])),
            "peak_mib": peak,
        }
    result["mqsieve"]["matches_per_message"] = round(matched / rows_of("mqsieve", groups), 1)
    return result


def _passes(runner: Engine, seconds: float, fewest: int = 1) -> list[float]:
    """The seconds of passes, as many as take ``seconds``."""
    passes: list[float] = []
    while len(passes) < fewest or sum(passes) < seconds:
        passes.append(runner.seconds())
    return passes


def table(results: dict[int, dict[str, dict[str, float]]]) -> str:
    def line(name: str, numbers: Iterable[float], unit: str) -> str:
        return f"| {name} |" + "".join(" |" if np.isnan(n) else f" {n:,.3g}{unit} |" for n in numbers)

    speeds = {
        name: [of[name]["messages_per_second"] / 1e6 if name in of else np.nan for of in results.values()]
        for name in ENGINES
    }
    lines = ["| million messages/s |" + "".join(f" G={groups:,} |" for groups in results)]
    lines.append("|---|" + "---|" * len(results))
    lines += [line(name, speeds[name], "") for name in speeds]
    for name in list(ENGINES)[:-1]:
        lines.append(line(f"mqsieve / {name}", np.divide(speeds["mqsieve"], speeds[name]).tolist(), " ×"))
    return "\n".join(lines)


def main() -> None:
    command_line = parser(__doc__, rounds=5)
    command_line.add_argument("--groups", type=int, nargs="+", default=[1, 10, 100, 1_000, 10_000])
    options = command_line.parse_args()
    os.environ["POLARS_MAX_THREADS"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    results = {groups: measure(groups, options.rounds) for groups in options.groups}
    write(options.output, "matcher", {"rounds": options.rounds, "batch_rows": BATCH_ROWS, "groups": results})
    speeds = {
        name: {groups: of.get(name, {}).get("messages_per_second") for groups, of in results.items()}
        for name in ENGINES
    }
    draw_speeds(options.output / "matcher.png", "Messages filtered for all groups", "one thread", speeds)
    print(table(results))


if __name__ == "__main__":
    main()
