"""Servers as processes of their own, which end with the test run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with_parent() -> None:
    """In a child process: on Linux it ends with the test run, even if that is killed."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """A program that runs until the end of the block."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, **environment}, preexec_fn=end_with_parent,
        )  # fmt: skip
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        self._rest = threading.Thread(target=self._stderr.read, daemon=True)

    def wait_for(self, ready: str) -> str:
        """Waits until it writes a line with this text to stderr. Returns the line."""
        said = []
        for line in self._stderr:
            if ready in line:
                self._rest.start()
                return line
            said.append(line)
        raise AssertionError(f"{self._command} ended: {''.join(said)}")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._rest.ident is not None:
            self._rest.join()
        self._stderr.close()
