"""Processes that measure: each works once for each line that it is told, and answers with a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


class MeasuringProcess:
    """A program that measures, in ``folder``. It is killed at the end of a ``with`` block."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command, cwd=folder, env=os.environ | (environment or {}), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, question: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        print(question, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a measuring process ended: {' '.join(self._command)[-300:]}")
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class NightProcess(MeasuringProcess):
    """Runs nights, one after another. ``options``: those of benchmarks.night_process."""

    def __init__(self, *options: str) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.night_process", *options], ROOT)

    def night(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Seconds, CPU seconds and steps of a night with this command line."""
        answer: dict[str, Any] = json.loads(self.ask(json.dumps(arguments)))
        return answer
