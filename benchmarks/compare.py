"""This checkout beside another commit, with the noise measured.

    python -m benchmarks.compare COMMIT [--rounds 11]

Three processes take turns: the other commit, this checkout, and this checkout once more. The ratio of the last
two is what noise alone does; a difference within it is none. COMMIT needs benchmarks/quick.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import quantiles

from benchmarks.processes import ROOT, MeasuringProcess


def start(checkout: Path) -> MeasuringProcess:
    command = [sys.executable, "-m", "benchmarks.quick"]
    return MeasuringProcess(command, checkout, {"PYTHONPATH": str(checkout)})


def ask(process: MeasuringProcess) -> dict[str, float]:
    answer: dict[str, float] = json.loads(process.ask("go"))
    return answer


def ratios(over: list[dict[str, float]], under: list[dict[str, float]], name: str) -> str:
    low, middle, high = quantiles((a[name] / b[name] for a, b in zip(over, under, strict=True)), n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", other, options.commit], cwd=ROOT, check=True)
        try:
            for shared in (".venv", ".cache"):
                (other / shared).symlink_to(ROOT / shared)
            processes = [start(other), start(ROOT), start(ROOT)]
            for process in processes:
                ask(process)
            rounds = [[ask(process) for process in processes] for _ in range(options.rounds)]
            for process in processes:
                process.close()
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
    before, now, again = (list(column) for column in zip(*rounds, strict=True))
    print(f"time of this checkout / {options.commit}: median (quartiles) of {options.rounds} rounds; then noise alone")
    for name in now[0]:
        print(f"{name:8} {ratios(now, before, name)}   noise {ratios(again, now, name)}")


if __name__ == "__main__":
    main()
