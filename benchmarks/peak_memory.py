"""Memory of a process, alone or with all that it started."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS_BETWEEN_LOOKS = 1.0


class Peak:
    """``mib``: the most that was seen at once, in MiB; memory that processes share counts once (PSS)."""

    mib = 0.0


@contextmanager
def peak_memory(root: int | None = None) -> Iterator[Peak]:
    """Watches a process (None: this one) until the block ends."""
    peak, ended = Peak(), threading.Event()
    first = os.getpid() if root is None else root

    def watch() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            peak.mib = max(peak.mib, sum(_kib(process) for process in _family(first)) / 1024)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def present_mib(process: int) -> int:
    """MiB of memory that a process has now."""
    return _status(process, "VmRSS")


def greatest_mib(process: int) -> int:
    """The most MiB of memory that a process had so far."""
    return _status(process, "VmHWM")


def _status(process: int, name: str) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) >> 10


def _family(root: int) -> list[int]:
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            children[int(stat.read_text().rsplit(")", 1)[1].split()[1])].append(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    family = [root]
    for process in family:
        family += children[process]
    return family


def _kib(process: int) -> int:
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(rollup.split("\nPss:")[1].split()[0])
