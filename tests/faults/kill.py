"""Kills nights. Each runs in its own process, forked from one that has imported everything.

This module is also the program of that process. It reads orders from stdin, one JSON object a line, and answers each
with the end of the night. deltalake must not be used before a fork, so the process itself runs no night.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from conf.compile_loops import LOOPS, compile_loops
from jobs import nightly
from jobs.cli import application
from schemas.delta.delta_log import DeltaLog
from schemas.delta.table import DataFileWriter

PROJECT = Path(__file__).parents[2]


class Order(NamedTuple):
    """A command line of nightly, killed after a number of steps or seconds; None: not killed.

    ``largest_file``: bytes of the largest file that it can write.
    """

    arguments: Sequence[str]
    after_steps: int | None = None
    after_seconds: float | None = None
    largest_file: int | None = None


class Ended(NamedTuple):
    """The end of a night: whether it was ``killed``, its exit ``code``, and the number of its ``steps``."""

    killed: bool
    code: int
    steps: int
    error: str


class Nights:
    """The process from which nights are forked."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.kill"], cwd=PROJECT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, order: Order) -> Ended:
        """Runs a night until it ends or is killed."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return Ended(*json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        self._server.communicate()


@contextlib.contextmanager
def night_process() -> Iterator[Nights]:
    nights = Nights()
    try:
        yield nights
    finally:
        nights.close()


class _Steps:
    """Counts the steps that change files or tables, and kills this process after one of them."""

    def __init__(self, last: int | None) -> None:
        self.done = 0
        self._last = last

    def count(self, owner: type, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self.done += 1
            if self.done == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, counted)


def _night(order: Order, answer: int) -> None:
    """In the child: runs nightly, and writes steps and stderr to a pipe."""
    steps = _Steps(order.after_steps)
    # After `write` a file has rows and no footer; after `close` it is whole, and no table has it.
    for owner, names in ((DataFileWriter, ("write", "close")), (DeltaLog, ("create", "commit", "restore"))):
        for name in names:
            steps.count(owner, name)
    if order.largest_file is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.largest_file, order.largest_file))
    sys.argv = ["nightly", *order.arguments]
    code = 1
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            application.run(nightly.main)
        except SystemExit as ended:
            code = int(str(ended.code))
    os.write(answer, json.dumps((False, code, steps.done, error.getvalue()[-2000:])).encode())
    os._exit(0)


def _serve() -> None:
    # Child processes have what this one has loaded: the compiled loops, and the modules that a night imports late.
    compile_loops(LOOPS.read_text().splitlines())
    for module in ("filtering.sql92.predicate_sql", "schemas.spark_views"):
        import_module(module)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for line in sys.stdin:
        order = Order(*json.loads(line))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            _night(order, write)
        os.close(write)
        if order.after_seconds is not None and signal.sigtimedwait([signal.SIGCHLD], order.after_seconds) is None:
            os.kill(child, signal.SIGKILL)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        signal.sigtimedwait([signal.SIGCHLD], 0)
        print(text or json.dumps((True, -signal.SIGKILL, 0, "")), flush=True)


if __name__ == "__main__":
    _serve()
