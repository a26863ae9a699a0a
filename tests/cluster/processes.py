"""Servers as processes of their own, which end with the test run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
LOCALHOST = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)}
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


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[str]:
    """The address of a master with so many workers of a core each. ``folder``: where these work."""
    with ExitStack() as running:

        def start(role: str, *arguments: object) -> Server:
            name = f"org.apache.spark.deploy.{role.lower()}.{role}"
            ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            command = [SPARK_HOME / "bin" / "spark-class", name, *ports, *arguments]
            return running.enter_context(Server(list(map(str, command)), LOCALHOST))

        address = start("Master").wait_for("Starting Spark master at").split()[-1]
        sizes = ("--cores", 1, "--memory", "1g", "--work-dir")
        started = [start("Worker", *sizes, folder / str(number), address) for number in range(workers)]
        for worker in started:
            worker.wait_for("Successfully registered with master")
        yield address
