"""What a measurement was taken on, and of what."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROCKETMQ = "5.5.0"
EVENT_RULER = "1.8.1"
PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "numpy", "numba", "sqlglot", "duckdb", "polars")


def machine() -> dict[str, str]:
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?:?")
    memory = Path("/proc/meminfo").read_text().split()[1]
    return {
        "cpu": cpu.split(":")[1].strip(),
        "cores": str(os.cpu_count()),
        "memory_gib": str(int(memory) >> 20),
        "system": platform.platform(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], text=True, capture_output=True, check=True).stderr.splitlines()[0]
    packages = {name: version(name) for name in PACKAGES}
    return {
        "python": sys.version.split()[0], "java": java, "rocketmq": ROCKETMQ, "event-ruler": EVENT_RULER, **packages
    }  # fmt: skip


def commit() -> str:
    """The commit that was measured; with a ``+`` where files differ from it."""
    folder = Path(__file__).parent
    text = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"], cwd=folder, text=True,
        capture_output=True, check=False,
    ).stdout  # fmt: skip
    return text.strip() or "unknown"
