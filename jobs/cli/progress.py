"""Progress of a long run: the current step on a terminal, a line for each finished step in a log."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

from filtering.counted import counted
from jobs.night.run import NightReport
from schemas.printable import printable


class Progress:
    """Shows the progress of one night on stderr."""

    def __init__(self, broker_name: str) -> None:
        self._name = printable(broker_name)
        self._begun = time.monotonic()
        self._on_terminal = os.environ.get("MQSIEVE_TERMINAL") == "1"

    def __enter__(self) -> Progress:
        if self._on_terminal:
            sys.stderr.write(f"\r\033[K{self._name} …")
            sys.stderr.flush()
        return self

    def end(self, report: NightReport) -> None:
        """Writes one line: the time, and the number of messages and their rate if any were read."""
        seconds = time.monotonic() - self._begun
        messages = report.rows.get("commitlog", 0)
        done = "done" if report.entry else "nothing new"
        if messages:
            done = f"{counted(messages, 'message')}, {messages / max(seconds, 0.001):,.0f}/s"
        clear = "\r\033[K" if self._on_terminal else ""
        now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        sys.stderr.write(f"{clear}{now} {self._name}: {done} ({seconds:.1f} s)\n")

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        sys.stderr.flush()
