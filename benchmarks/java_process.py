"""Java programs that measure RocketMQ and event-ruler."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from benchmarks.processes import MeasuringProcess

JAVA = Path(__file__).parent / "java"
QUIET = JAVA / "rmq.logback.xml"


class JavaProcess(MeasuringProcess):
    """A program in benchmarks/java, with RocketMQ's and event-ruler's jars. Needs Java 17 and Maven."""

    def __init__(self, program: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        java = ["java", f"-Drmq.logback.configurationFile={QUIET}", *options, "-cp", _class_path()]
        super().__init__([*java, program, *arguments], JAVA)

    def numbers(self, question: str) -> list[int]:
        """The numbers in the answer."""
        return [int(number) for number in self.ask(question).split()]


@cache
def _class_path() -> str:
    resolve = ["mvn", "-q", "dependency:build-classpath", "-Dmdep.outputFile=/dev/stdout"]
    return subprocess.run(resolve, cwd=JAVA, text=True, check=True, capture_output=True).stdout.strip()
