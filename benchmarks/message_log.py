"""A night on a message log, beside one on the store that it is an export of, and beside DuckDB, which only converts it.

    python -m benchmarks.message_log [--messages 500000] [--groups 200] [--rounds 3] [--folder DIR] [--output DIR]

The log is ``export commitlog`` of the store, as JSON lines and as Parquet. Nights are warm, in one process, each into a
new warehouse; rounds alternate. DuckDB reads the JSON lines and writes them as Parquet with zstd, on as many threads.
All nights must deliver the same. Writes message_log.json.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import duckdb
import pyarrow as pa

from answers.export import Selection, batches_of
from benchmarks.broker_store import write_store
from benchmarks.night import CORES
from benchmarks.night_files import night_options, write_night_files
from benchmarks.processes import NightProcess
from benchmarks.report import parser, write
from jobs import export
from schemas.deliveries import DELIVERIES
from schemas.delta.warehouse import Warehouse

DELIVERED = ("consumer_group", "topic", "queue_id", "queue_offset", "commitlog_offset")


def deliveries(warehouse: Path) -> pa.Table:
    """All deliveries of a night, in an order of their own."""
    batches = batches_of(Warehouse.at(str(warehouse)), DELIVERIES, Selection(columns=DELIVERED))
    table = pa.Table.from_batches(batches)
    return table.sort_by([(name, "ascending") for name in DELIVERED])


def convert(log: Path, converted: Path) -> float:
    """Seconds of DuckDB for JSON lines to Parquet."""
    begin = perf_counter()
    with duckdb.connect() as database:
        database.execute(f"SET threads = {CORES}")
        lines = database.read_json(str(log), format="newline_delimited")
        lines.write_parquet(str(converted), compression="zstd")
    return perf_counter() - begin


def main() -> None:
    command_line = parser(__doc__, rounds=3)
    command_line.add_argument("--messages", type=int, default=500_000)
    command_line.add_argument("--groups", type=int, default=200)
    command_line.add_argument(
        "--folder", type=Path, help="where logs and tables go for a while; default: a temporary one"
    )
    options = command_line.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made, NightProcess() as process:
        folder = Path(made)
        write_store(folder / "store", options.messages)
        write_night_files(folder, options.groups, with_bit_map=True)
        first = folder / "first"
        process.night(night_options(folder, folder / "store", first))
        logs = {"store": folder / "store", "jsonl": folder / "log.jsonl", "parquet": folder / "log.parquet"}
        for kind in ("jsonl", "parquet"):
            export.main(["commitlog", "--warehouse", str(first), "--format", kind, "--output", str(logs[kind])])

        def night(kind: str) -> float:
            warehouse = folder / f"warehouse_{kind}"
            shutil.rmtree(warehouse, ignore_errors=True)
            seconds: float = process.night(night_options(folder, logs[kind], warehouse))["seconds"]
            return seconds

        sides: dict[str, Callable[[], float]] = {kind: partial(night, kind) for kind in logs}
        sides["duckdb"] = partial(convert, logs["jsonl"], folder / "converted.parquet")
        times: dict[str, list[float]] = {side: [] for side in sides}
        for measured in sides.values():
            measured()
        for _ in range(options.rounds):
            for side, measured in sides.items():
                times[side].append(round(measured(), 3))
        expected = deliveries(first)
        assert expected.num_rows
        for kind in logs:
            assert deliveries(folder / f"warehouse_{kind}") == expected, f"the night on {kind} delivers something else"
        sizes = {kind: logs[kind].stat().st_size for kind in ("jsonl", "parquet")}
    seconds = {side: round(median(taken), 2) for side, taken in times.items()}
    numbers = {
        "messages": options.messages, "groups": options.groups, "cores": CORES, "rounds": options.rounds,
        "bytes": sizes, "deliveries": expected.num_rows, "seconds": seconds, "seconds_of_rounds": times,
    }  # fmt: skip
    write(options.output, "message_log", numbers)
    print(f"{options.messages:,} messages, {options.groups:,} groups; JSON lines {sizes['jsonl'] / 1e6:,.0f} MB\n")
    print("| | seconds | × store | × DuckDB |\n|---|---|---|---|")
    titles = {
        "store": "night on the store",
        "jsonl": "on JSON lines",
        "parquet": "on Parquet",
        "duckdb": "DuckDB converts",
    }
    for name, title in titles.items():
        ratios = f"{seconds[name] / seconds['store']:.2f} | {seconds[name] / seconds['duckdb']:.2f}"
        print(f"| {title} | {seconds[name]:.2f} | {ratios} |")


if __name__ == "__main__":
    main()
