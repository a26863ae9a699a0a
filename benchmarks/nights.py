"""What a night costs after many messages, and what many small nights leave behind.

    python -m benchmarks.nights [--messages 1000000 …] [--groups 1000] [--part 10000] [--nights 30]
                                [--many-groups 10000] [--rounds 3] [--folder DIR] [--output DIR]

- after: a night of ``part`` new messages after a first night of ``messages``, and the night of those alone, each the
  median of rounds in one warm process;
- small: ``nights`` nights of 2,000 messages each, one after another in one process: seconds, files of all tables, and
  memory at its beginning and at its end;
- groups: what many groups cost, with few messages: a night in which all are new, one with new messages for the same
  groups, and one of nothing new, each the median of rounds in one warm process.

Writes nights.json.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.broker_store import BROKER, StoreWriter
from benchmarks.night_files import night_options, write_night_files
from benchmarks.peak_memory import present_mib
from benchmarks.processes import NightProcess
from benchmarks.report import parser, write
from schemas.delta.warehouse import Warehouse
from schemas.tables import TABLES

SMALL_NIGHT = 2_000
ENDS = 5
"""Nights at the beginning and at the end of many of which the medians are compared."""


def after(folder: Path, messages: int, part: int, rounds: int) -> dict[str, Any]:
    """Nights of ``part`` messages after ``messages``, and alone."""
    process = NightProcess()
    store, alone = StoreWriter(folder / "store"), StoreWriter(folder / "alone")
    store.append(messages)
    process.night(night_options(folder, folder / "store", folder / "first"))
    store.append(part)
    alone.append(part)
    rounds_of: dict[str, list[dict[str, float]]] = {"after": [], "alone": []}
    for turn in range(rounds + 1):
        for name, of in (("after", "store"), ("alone", "alone")):
            warehouse = folder / f"night_{turn}_{name}"
            if name == "after":
                shutil.copytree(folder / "first", warehouse)
            taken = process.night(night_options(folder, folder / of, warehouse))
            shutil.rmtree(warehouse)
            if turn:
                rounds_of[name].append(taken)
    process.close()
    measurements: dict[str, Any] = {"messages": messages, "new": part}
    for unit in ("seconds", "cpu"):
        medians = {name: median(taken[unit] for taken in of) for name, of in rounds_of.items()}
        ratio = medians["after"] / medians["alone"]
        measurements[unit] = {name: round(number, 2) for name, number in {**medians, "ratio": ratio}.items()}
    return measurements


def small_nights(folder: Path, nights: int) -> dict[str, Any]:
    process = NightProcess()
    store = StoreWriter(folder / "growing")
    measurements = []
    for _ in range(nights):
        store.append(SMALL_NIGHT)
        night = process.night(night_options(folder, folder / "growing", folder / "small"))
        seconds, cpu = round(night["seconds"], 2), round(night["cpu"], 2)
        measurements.append((seconds, cpu, files(folder / "small"), present_mib(process.pid)))
    process.close()
    first, last = measurements[1 : ENDS + 1], measurements[-ENDS:]
    names = ("seconds", "cpu", "files", "memory_mib")
    return {
        "nights": nights,
        "first": dict(zip(names, map(median, zip(*first, strict=True)), strict=True)),
        "last": dict(zip(names, map(median, zip(*last, strict=True)), strict=True)),
        "each": measurements,
    }


def nights_of_groups(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """By night: the seconds and CPU seconds of new groups, of the same groups, and of nothing new."""
    # Not a copy: that would hold 1 GiB of zeros, which a night reads, where a broker's file has a hole.
    begun, grown = StoreWriter(folder / "begun"), StoreWriter(folder / "grown")
    for store in (begun, grown, grown):
        store.append(SMALL_NIGHT)
    stores = {"new groups": "begun", "same groups": "grown", "nothing new": "grown"}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in stores}
    with NightProcess() as process:
        for turn in range(rounds + 1):
            for name, of in stores.items():
                night = process.night(night_options(folder, folder / of, folder / "groups"))
                if turn:
                    taken[name].append(night)
            shutil.rmtree(folder / "groups")
    return {
        name: {unit: round(median(night[unit] for night in nights), 2) for unit in ("seconds", "cpu")}
        for name, nights in taken.items()
    }


def files(folder: Path) -> int:
    """Data files that readers of all tables open."""
    warehouse = Warehouse.at(str(folder))
    return sum(len(warehouse.files(table, BROKER)) for table in TABLES if warehouse.exists(table))


def main() -> None:
    command_line = parser(__doc__, rounds=3)
    command_line.add_argument("--messages", type=int, nargs="+", default=[1_000_000])
    command_line.add_argument("--groups", type=int, default=1_000)
    command_line.add_argument("--part", type=int, help="new messages; default: a hundredth of the first of --messages")
    command_line.add_argument("--nights", type=int, default=30)
    command_line.add_argument("--many-groups", type=int, default=10_000)
    command_line.add_argument(
        "--folder", type=Path, help="where logs and tables go for a while; default: a temporary folder"
    )
    options = command_line.parse_args()
    part = options.part or options.messages[0] // 100
    numbers: dict[str, Any] = {"groups": options.groups, "after": []}
    for messages in options.messages:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            write_night_files(Path(name), options.groups, with_bit_map=True)
            numbers["after"].append(after(Path(name), messages, part, options.rounds))
        last = numbers["after"][-1]
        print(f"{part:,} messages after {messages:,}: seconds {last['seconds']}, CPU {last['cpu']}", flush=True)
        write(options.output, "nights", numbers)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        write_night_files(Path(name), options.groups, with_bit_map=True)
        numbers["small"] = small_nights(Path(name), options.nights)
    small = numbers["small"]
    print(f"{options.nights} nights of {SMALL_NIGHT:,}: the first {ENDS} {small['first']}, the last {small['last']}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        write_night_files(Path(name), options.many_groups, with_bit_map=True)
        numbers["many_groups"] = {"groups": options.many_groups, **nights_of_groups(Path(name), options.rounds)}
    print(f"{options.many_groups:,} groups and {SMALL_NIGHT:,} messages: {numbers['many_groups']}")
    write(options.output, "nights", numbers)


if __name__ == "__main__":
    main()
