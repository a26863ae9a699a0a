"""The Java side of a measurement: RocketMQ's own filter loop, or AWS event-ruler, in a process each."""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import ruler_rules
from filtering.sql92 import compile

JAVA = Path(__file__).parent / "java"
NUMBERS = {"price": "DOUBLE", "qty": "INTEGER", "userId": "INTEGER"}

Result = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""For each group how many messages match, and the sum of their numbers."""


class FilterBench:
    """RocketMQ or event-ruler: a process that filters once for each line it is told."""

    _path = ""

    def __init__(self, engine: str, batch: pa.RecordBatch, expressions: list[str]) -> None:
        if not FilterBench._path:
            resolve = ["mvn", "-q", "dependency:build-classpath", "-Dmdep.outputFile=/dev/stdout"]
            FilterBench._path = subprocess.run(
                resolve, cwd=JAVA, text=True, check=True, capture_output=True
            ).stdout.strip()
        self._groups = len(expressions)
        self._folder = tempfile.TemporaryDirectory()
        messages, lines = (Path(self._folder.name) / name for name in ("messages", "subscriptions"))
        with open(messages, "w") as file:
            for row in batch.to_pylist():
                file.write("\2".join(f"{name}\1{text}" for name, text in row.items() if text is not None) + "\n")
        if engine == "ruler":
            rules = [ruler_rules.rules(compile(expression).predicate, frozenset(NUMBERS)) for expression in expressions]
            expressions = [f"{i}\t{rule}" for i, of_one in enumerate(rules) for rule in of_one]
        lines.write_text("\n".join(expressions))
        command = ["java", "-XX:+UseSerialGC", "-Xms1g", "-Xmx4g", "-cp", self._path, "FilterBench.java"]
        self._process = subprocess.Popen(
            [*command, engine, str(messages), str(lines)],
            cwd=JAVA,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _ask(self, question: str) -> list[int]:
        assert self._process.stdin
        assert self._process.stdout
        print(question, file=self._process.stdin, flush=True)
        return [int(number) for number in self._process.stdout.readline().split()]

    def seconds(self) -> float:
        return self._ask("run")[0] / 1e9

    def check(self) -> Result:
        answer = np.array(self._ask(f"check {self._groups}"), np.int64)
        return answer[::2], answer[1::2]

    def peak(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) >> 10

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()
