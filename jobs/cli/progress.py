"""Tells on stderr that a night runs, and that it ended: the first on a terminal only, the second in a log, too."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

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


def print_end(report: NightReport) -> None:
    """Prints one line: the time, and the number of messages and their rate if any were read."""
    messages = report.rows.get("commitlog", 0)
    done = "done" if report.entry else "nothing new"
    if messages:
        done = f"{counted(messages, 'message')}, {messages / max(report.seconds, 0.001):,.0f}/s"
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    print(f"{now} {printable(report.broker.name)}: {done} ({report.seconds:.1f} s)", file=sys.stderr)
