"""./spark-submit.sh python -m tests.faults.kill_nights: kills nights at random, and runs each again.

The nights are those of the captures ``dev`` and ``nights_dev``. Half of them are killed at a random time, and half
after a random step (a file or a commit). The second run must give the rows of an undisturbed night.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.kill import Nights, Order, night_process
from tests.nights.commands import arguments, differing, living, without_runs


@dataclass(frozen=True)
class Case:
    """A night that begins with a copy of ``before`` (None: no warehouse) and ends with the tables of ``after``."""

    name: str
    before: Path | None
    command: list[str]
    after: Path
    steps: int
    seconds: float


def undisturbed(nights: Nights, folder: Path, warehouse: Path) -> list[Case]:
    """Runs each night once, without faults."""
    commands = {"dev": arguments("dev", warehouse)}
    commands |= {f"night {number}": living(number, warehouse) for number in (1, 2, 3, 4)}
    cases: list[Case] = []
    for name, command in commands.items():
        before = cases[-1].after if cases and name != "night 1" else None
        start_from(warehouse, before)
        begun = time.monotonic()
        ended = nights.run(Order(command))
        if ended.code:
            sys.exit(f"{name}: {ended.error}")
        after = folder / name
        shutil.copytree(warehouse, after)
        cases.append(Case(name, before, command, after, ended.steps, time.monotonic() - begun))
    return cases


def start_from(warehouse: Path, before: Path | None) -> None:
    shutil.rmtree(warehouse, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, warehouse)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20_261_121)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    killed: Counter[str] = Counter()
    wrong = 0
    with night_process() as nights, tempfile.TemporaryDirectory() as name:
        warehouse = Path(name) / "w"
        cases = undisturbed(nights, Path(name), warehouse)
        expected = {case.name: without_runs(case.after) for case in cases}
        while killed.total() < options.kills:
            case = cases[killed.total() % len(cases)]
            start_from(warehouse, case.before)
            if chance.random() < 0.5:
                order = Order(case.command, after_steps=chance.randint(1, case.steps))
            else:
                order = Order(case.command, after_seconds=chance.uniform(0, case.seconds))
            if not nights.run(order).killed:
                continue
            killed[case.name] += 1
            again = nights.run(Order(case.command))
            tables = without_runs(warehouse) if not again.code else {}
            if tables != expected[case.name]:
                wrong += 1
                what = again.error or differing(tables, expected[case.name])
                print(f"{case.name}, {order[1:]}: {what}", flush=True)
    print(f"{killed.total() - wrong} of {killed.total()} identical: {dict(killed)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
