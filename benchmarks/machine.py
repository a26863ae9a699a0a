"""What a measurement was taken on."""

import os
import platform
import subprocess
import sys
from pathlib import Path


def machine() -> dict[str, str]:
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?:?")
    memory = Path("/proc/meminfo").read_text().split()[1]
    java = subprocess.run(["java", "-version"], text=True, capture_output=True, check=True).stderr.splitlines()[0]
    return {
        "cpu": cpu.split(":")[1].strip(),
        "cores": str(os.cpu_count()),
        "memory_gib": str(int(memory) >> 20),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "java": java,
    }
