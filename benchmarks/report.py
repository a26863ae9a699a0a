"""What a measurement leaves behind: its numbers with the machine that they are from, and a picture."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine, versions

FOLDER = Path(__file__).parent / "results"


def parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """The options that most benchmarks have. ``rounds``: how often each measures by default."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--output", type=Path, default=FOLDER, metavar="DIR")
    return made


def write(folder: Path, name: str, numbers: Mapping[str, Any]) -> None:
    """NAME.json in ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = {"commit": commit(), "versions": versions(), "machine": machine(), **numbers}
    (folder / f"{name}.json").write_text(json.dumps(measured, indent=2) + "\n")


def draw_speeds(file: Path, title: str, cores: str, speeds: Mapping[str, Mapping[int, float | None]]) -> None:
    """Messages a second over groups, a curve a name; None where it was not measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, speed_by_groups in speeds.items():
        axes.loglog(list(speed_by_groups), list(speed_by_groups.values()), marker="o", label=name)
    axes.set(xlabel="groups", ylabel=f"messages a second, {cores}", title=title)
    axes.grid(which="major", alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120, bbox_inches="tight")
