"""The time of answers: each command in a process of its own, on the warehouse of one night.

``what-if --changes`` reads a file with the subscriptions of all groups, of which CHANGED have another filter.

    python -m benchmarks.answers [--messages 1000000] [--groups 1000] [--rounds 3] [--folder DIR] [--output DIR]

Each is run once before the rounds. Writes answers.json: the median of the rounds, in seconds, and the most memory of
any (MiB), which is at least that of this process. Messages take 380 bytes of disk each.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.broker_store import BROKER, TOPICS, write_store
from benchmarks.night_files import night_options, write_night_files
from benchmarks.processes import ROOT
from benchmarks.report import parser, write
from schemas.commitlog import COMMITLOG
from schemas.delta.warehouse import Warehouse
from schemas.subscriptions import SUBSCRIPTIONS

CHANGED = 10


def commands(warehouse: Path, changes: Path, output: Path) -> dict[str, list[str]]:
    """Questions about a message in the middle of the log, and about a group of its topic."""
    opened = Warehouse.at(str(warehouse))
    files = opened.files(COMMITLOG, BROKER)
    keys = opened.rows(COMMITLOG, ["uniq_key"], files=[files[len(files) // 2]])["uniq_key"]
    key = keys[len(keys) // 2].as_py()
    rows = opened.rows(SUBSCRIPTIONS, ["consumer_group", "topic"]).to_pylist()
    group = min(row["consumer_group"] for row in rows if row["topic"] == TOPICS[0])
    of_warehouse = ["--warehouse", str(warehouse)]
    commands = {
        "explain": ["explain", "--message", key, "--group", group],
        "explain --where": ["explain", "--where", f"UNIQ_KEY = '{key}'", "--group", group],
        "lag": ["lag"],
        "lint": ["lint"],
        "what-if": ["what-if", "--group", group, "--topic", TOPICS[0], "--sql", "region = 'hangzhou' AND price > 50.0"],
        "what-if --changes": ["what-if", "--changes", str(changes)],
        "report": ["report", "--output", str(output)],
        "export missed": ["export", "missed", "--group", group, "--output", str(output)],
    }
    return {name: [*command, *of_warehouse] for name, command in commands.items()}


def write_changes(file: Path, subscriptions: Sequence[tuple[str, str, str]]) -> None:
    """Writes the subscriptions as a YAML list: the first CHANGED of a topic each have the filter of the next one."""
    changed = [*subscriptions[2 : CHANGED + 2], *subscriptions[CHANGED:]]
    filters = [expression for _, _, expression in changed]
    rows = zip(subscriptions, filters, strict=True)
    file.write_text(json.dumps([{"group": g, "topic": topic, "sql": sql} for (g, topic, _), sql in rows]))


def measured(command: list[str]) -> tuple[float, int]:
    """Seconds and MiB of memory."""
    begin = perf_counter()
    started = [str(ROOT / "spark-submit.sh"), *command]
    process = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"failed: {' '.join(started)}")
    return perf_counter() - begin, usage.ru_maxrss >> 10


def main() -> None:
    command_line = parser(__doc__, rounds=3)
    command_line.add_argument("--messages", type=int, default=1_000_000)
    command_line.add_argument("--groups", type=int, default=1_000)
    command_line.add_argument(
        "--folder", type=Path, help="where the log and the tables go; default: a temporary folder"
    )
    options = command_line.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_store(folder / "store", options.messages)
        subscriptions = write_night_files(folder, options.groups, with_bit_map=True)
        write_changes(folder / "changes.yaml", subscriptions)
        measured(["nightly", *night_options(folder, folder / "store", folder / "warehouse")])
        seconds_of_job, mib_of_job = {}, {}
        for job, command in commands(folder / "warehouse", folder / "changes.yaml", folder / "output").items():
            rounds = [measured(command) for _ in range(options.rounds + 1)]
            seconds_of_job[job] = round(median(seconds for seconds, _ in rounds[1:]), 2)
            mib_of_job[job] = max(mib for _, mib in rounds)
            print(f"{job} {seconds_of_job[job]:.2f} s, {mib_of_job[job]} MiB", flush=True)
    numbers = {"messages": options.messages, "groups": options.groups, "rounds": options.rounds}
    write(options.output, "answers", numbers | {"seconds": seconds_of_job, "mib": mib_of_job})


if __name__ == "__main__":
    main()
