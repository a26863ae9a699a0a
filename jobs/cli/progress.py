"""Tells on stderr that a night runs, and that it ended: the first on a terminal only, the second in a log, too."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event as numba_event

from filtering.counted import counted
from jobs.night.run import NightReport
from schemas.printable import printable

CLEARED_LINE = "\r\033[K"


@contextmanager
def shown_on_terminal(broker_name: str) -> Iterator[None]:
    """Shows the name of a broker while its night runs."""
    if os.environ.get("MQSIEVE_TERMINAL") != "1":
        yield
        return
    print(f"{CLEARED_LINE}{printable(broker_name)} …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(CLEARED_LINE, end="", file=sys.stderr, flush=True)


class Compilation(numba_event.Listener):
    """The ``seconds`` in which some thread compiled functions. Loading them from the cache is not counted."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._begins = begins
        self._began = 0.0
        self._running = 0
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        with self._lock:
            if not self._running:
                if not self.seconds:
                    self._begins()
                self._began = time.monotonic()
            self._running += 1

    def on_end(self, event: Any) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self.seconds += time.monotonic() - self._began


@contextmanager
def compile_time(begins: Callable[[], None]) -> Iterator[Compilation]:
    """Measures how long functions are compiled in a ``with`` block. ``begins`` is called before the first one is."""
    listener = Compilation(begins)
    events: Any = numba_event
    events.register("numba:compile", listener)
    try:
        yield listener
    finally:
        events.unregister("numba:compile", listener)


def print_compiles() -> None:
    """Prints that the first use on a machine takes longer."""
    clear = CLEARED_LINE if os.environ.get("MQSIEVE_TERMINAL") == "1" else ""
    print(
        f"{clear}mqsieve compiles its loops for this processor, once: up to half a minute", file=sys.stderr, flush=True
    )


def print_end(report: NightReport, compiling: float) -> None:
    """Prints one line: the time, and the number of messages and their rate if any were read.

    ``compiling``: the seconds of the night in which loops were compiled. They are not part of the rate.
    """
    messages = report.rows.get("commitlog", 0)
    done = "done" if report.entry else "nothing new"
    if messages:
        done = f"{counted(messages, 'message')}, {messages / max(report.seconds - compiling, 0.001):,.0f}/s"
    took = f"{report.seconds:.1f} s" + (f", of which {compiling:.1f} s to compile" if compiling >= 0.05 else "")
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    print(f"{now} {printable(report.broker.name)}: {done} ({took})", file=sys.stderr)
