"""A whole night, beside RocketMQ's own and beside the floor, on one log in one run on the same cores.

    python -m benchmarks.night [--messages 1000000 …] [--groups 10 1000 10000] [--bit-map off on] [--rounds 3]
                               [--folder DIR] [--output DIR]

- cold: ./spark-submit.sh nightly, all included; warm: the next nights in a process with a Spark session that ran one;
  both into new warehouses, median of the rounds; steps: the same with all tasks in one process, on one core;
- RocketMQ: reput through its dispatchers and a full pull of each group (benchmarks.rocketmq_night). Where it would take
  hours, some messages and groups are measured and the rest is calculated from them, which the table tells;
- pops: a night on a log of which a third is the broker's record of pops of 200 groups, and one on a log of as many
  bytes without (benchmarks.pops); warm, without Spark, the median of the ratios of the rounds;
- floor: decoding, and PyArrow writing what the night stores (benchmarks.floor); cat: reading the log.

Deliveries must equal RocketMQ's, on every pair of the groups that were measured. Writes night.json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.broker_store import BROKER, write_store
from benchmarks.floor import floor
from benchmarks.night_files import night_options, write_night_files
from benchmarks.peak_memory import peak_memory
from benchmarks.pops import measure_pops
from benchmarks.processes import ROOT, NightProcess
from benchmarks.report import parser, write
from benchmarks.rocketmq_night import rocketmq_night
from schemas.delta.warehouse import Warehouse
from schemas.tables import TABLES

CORES = len(os.sched_getaffinity(0))
PARTS = {
    "ingest": ("tasks: find records, sort", "tasks: decode", "write commitlog"),
    "dispatch": ("write consumequeue",),
    "deliver": ("tasks: filter", "tasks: blocks", "write delivery_blocks"),
    "filters": ("read subscriptions", "subscriptions", "plan", "compile filters"),
}
"""The steps of each part of a night. The filters' bit maps are made in deliver's steps."""


def cold_night(options: Sequence[str]) -> dict[str, float]:
    """Seconds and MiB of a night in a process of its own."""
    begin = perf_counter()
    command = subprocess.Popen([ROOT / "spark-submit.sh", "nightly", *options], stdout=subprocess.DEVNULL)
    with peak_memory(command.pid) as peak:
        code = command.wait()
    assert code == 0, f"the night ended with {code}"
    return {"seconds": perf_counter() - begin, "peak_mib": round(peak.mib)}


def nights_in_a_process(commands: Sequence[Sequence[str]], *options: str) -> list[dict[str, Any]]:
    """The seconds and steps of nights, one after another in one process."""
    with NightProcess(*options) as process:
        return [process.night(command) for command in commands]


def measure(folder: Path, store: Path, messages: int, groups: int, with_bit_map: bool, rounds: int) -> dict[str, Any]:
    """All that is measured with some groups."""
    subscriptions = write_night_files(folder, groups, with_bit_map)
    warehouses = [folder / f"warehouse_{i}" for i in range(rounds + 1)]
    commands = [night_options(folder, store, each) for each in warehouses]
    made, *others = cold_warehouses = [folder / f"cold_{i}" for i in range(rounds)]
    cold = [cold_night(night_options(folder, store, each)) for each in cold_warehouses]
    remove(*others)
    cold_night([*night_options(folder, store, folder / "without_bodies"), "--bodies", "none"])
    os.sync()
    warm = [night["seconds"] for night in nights_in_a_process(commands, "--spark")[1:]]
    remove(*warehouses)
    in_steps = nights_in_a_process(commands[:2], "--steps")[1]
    measurements = {
        "cold": round(median(night["seconds"] for night in cold), 2),
        "cold_rounds": [round(night["seconds"], 2) for night in cold],
        "peak_mib": max(night["peak_mib"] for night in cold),
        "warm": round(median(warm), 2),
        "warm_rounds": [round(seconds, 2) for seconds in warm],
        "steps_on_one_core": {step: round(seconds, 2) for step, seconds in sorted(in_steps["steps"].items())},
        "parts_on_one_core": {
            part: round(sum(in_steps["steps"].get(step, 0.0) for step in steps), 2) for part, steps in PARTS.items()
        },
        "cpu_of_steps": round(in_steps["cpu"], 2),
        "bytes_per_message": bytes_per_message(made, messages),
        "bytes_per_message_without_bodies": bytes_per_message(folder / "without_bodies", messages)["all"],
    }
    os.sync()
    least = floor(store, made, CORES)
    measurements["floor"] = {"seconds": round(least.seconds, 2), "decode": round(least.decode, 2)}
    broker = rocketmq_night(store, messages, subscriptions, with_bit_map, CORES, made)
    measurements["rocketmq"] = {
        "seconds": round(broker.seconds, 2), "reput": round(broker.reput, 2), "pulls": round(broker.pulls, 2),
        "measured_messages": broker.messages, "measured_groups": broker.groups,
    }  # fmt: skip
    remove(made, folder / "without_bodies", *warehouses)
    return measurements


def bytes_per_message(warehouse: Path, messages: int) -> dict[str, float]:
    """Of the data files of each table."""
    opened = Warehouse.at(str(warehouse))
    sizes = {
        table.name: sum(file.size for file in opened.files(table, BROKER)) for table in TABLES if opened.exists(table)
    }
    return {name: round(size / messages, 2) for name, size in sizes.items()} | {
        "all": round(sum(sizes.values()) / messages, 2)
    }


def remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def seconds_of_cat(store: Path, size: int) -> float:
    """Seconds of reading the first ``size`` bytes of a log, the second time."""
    files = [str(file) for file in sorted((store / "commitlog").iterdir())]
    _cat(files, size)
    begin = perf_counter()
    _cat(files, size)
    return perf_counter() - begin


def _cat(files: list[str], size: int) -> None:
    with subprocess.Popen(["cat", *files], stdout=subprocess.PIPE) as cat:
        subprocess.run(["head", "-c", str(size)], stdin=cat.stdout, stdout=subprocess.DEVNULL, check=True)
        cat.terminate()


def table(size: int, measurements: dict[str, Any]) -> str:
    """Markdown: seconds, what part of the floor that is, and MB of log a second and core."""
    least = measurements["floor"]["seconds"]
    broker = measurements["rocketmq"]
    sampled = f"{broker['measured_messages']:,} messages, {broker['measured_groups']:,} groups measured"
    rows = [
        ("cat", measurements["cat"], ""),
        ("floor", least, f"{measurements['floor']['decode']} decode"),
        ("night, warm", measurements["warm"], ""),
        ("night, cold", measurements["cold"], f"peak {measurements['peak_mib']:,} MiB"),
        ("RocketMQ", broker["seconds"], f"{broker['reput']} reput, {broker['pulls']} pulls; {sampled}"),
    ]
    lines = ["| | seconds | × floor | × warm night | MB/s a core | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {name} | {seconds:,.2f} | {seconds / least:.2f} | {seconds / measurements['warm']:,.2f} | "
        f"{size / 1e6 / seconds / CORES:,.1f} | {remark} |"
        for name, seconds, remark in rows
    ]
    steps = sorted(measurements["steps_on_one_core"].items(), key=lambda step: -step[1])
    lines.append(
        f"one core, {measurements['cpu_of_steps']} s of CPU: "
        + ", ".join(f"{step} {seconds}" for step, seconds in steps if seconds >= 0.05)
    )
    parts = ", ".join(f"{part} {seconds}" for part, seconds in measurements["parts_on_one_core"].items())
    lines.append(f"parts on one core: {parts}; the floor {least * CORES:.2f}")
    lines.append(
        "bytes a message: " + ", ".join(f"{name} {of}" for name, of in measurements["bytes_per_message"].items())
    )
    lines.append(f"without bodies: {measurements['bytes_per_message_without_bodies']}")
    return "\n".join(lines)


def main() -> None:
    command_line = parser(__doc__, rounds=3)
    command_line.add_argument("--messages", type=int, nargs="+", default=[1_000_000])
    command_line.add_argument("--groups", type=int, nargs="+", default=[10, 1_000, 10_000])
    command_line.add_argument("--bit-map", choices=["off", "on"], nargs="+", default=["off", "on"])
    command_line.add_argument(
        "--folder", type=Path, help="where logs and tables go for a while; default: a temporary folder"
    )
    options = command_line.parse_args()
    nights: list[dict[str, Any]] = []
    pops: list[dict[str, Any]] = []
    numbers = {"cores": CORES, "rounds": options.rounds, "nights": nights, "pops": pops}
    for messages in options.messages:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            size = write_store(folder / "store", messages).size
            os.sync()  # No night has to wait while the disk stores the log.
            cat = round(seconds_of_cat(folder / "store", size), 2)
            for groups in options.groups:
                for bit_map in options.bit_map:
                    measurements = measure(folder, folder / "store", messages, groups, bit_map == "on", options.rounds)
                    what = {"messages": messages, "log_bytes": size, "groups": groups, "bit_map": bit_map}
                    nights.append(what | {"cat": cat} | measurements)
                    write(options.output, "night", numbers)
                    print(f"\n{messages:,} messages ({size / 1e6:,.0f} MB), {groups:,} groups, bit map {bit_map}\n")
                    print(table(size, nights[-1]), flush=True)
            pops.append(measure_pops(folder / "pops", messages, options.rounds))
            write(options.output, "night", numbers)
            print(f"\na third of the messages is the record of pops: {pops[-1]}\n", flush=True)


if __name__ == "__main__":
    main()
