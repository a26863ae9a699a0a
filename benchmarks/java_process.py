"""A Java process that measures: it works once for each line that it is told, and answers a line of numbers."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

JAVA = Path(__file__).parent / "java"
QUIET = JAVA / "rmq.logback.xml"


class JavaProcess:
    """A program in benchmarks/java, with RocketMQ's and event-ruler's jars. Needs Java 17 and Maven."""

    def __init__(self, program: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        self._process = subprocess.Popen(
            ["java", f"-Drmq.logback.configurationFile={QUIET}", *options, "-cp", _class_path(), program, *arguments],
            cwd=JAVA,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: str) -> list[int]:
        assert self._process.stdin
        assert self._process.stdout
        print(question, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the Java process ended: {' '.join(map(str, self._process.args))[-300:]}")
        return [int(number) for number in answer.split()]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@cache
def _class_path() -> str:
    resolve = ["mvn", "-q", "dependency:build-classpath", "-Dmdep.outputFile=/dev/stdout"]
    return subprocess.run(resolve, cwd=JAVA, text=True, check=True, capture_output=True).stdout.strip()
