"""The Java side of a measurement: RocketMQ's own filter loop, or AWS event-ruler, in a process each."""

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import ruler_rules
from benchmarks.java_process import JavaProcess
from benchmarks.peak_memory import greatest_mib
from filtering.sql92 import compile

NUMBERS = {"price": "DOUBLE", "qty": "INTEGER", "userId": "INTEGER"}

Result = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""For each group how many messages match, and a checksum of which."""


def mixed(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Numbers mixed as in SplitMix64 (Steele, Lea and Flood, 2014), so that equal sums mean the same messages."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


class FilterBench:
    """RocketMQ or event-ruler: a process that filters once for each line it is told."""

    def __init__(self, engine: str, batch: pa.RecordBatch, expressions: list[str]) -> None:
        self._groups = len(expressions)
        self._folder = tempfile.TemporaryDirectory()
        messages, lines = (Path(self._folder.name) / name for name in ("messages", "subscriptions"))
        with open(messages, "w") as file:
            for row in batch.to_pylist():
                file.write("\2".join(f"{name}\1{text}" for name, text in row.items() if text is not None) + "\n")
        if engine == "ruler":
            rules = [ruler_rules.rules(compile(expression).predicate, frozenset(NUMBERS)) for expression in expressions]
            expressions = [f"{i}\t{rule}" for i, client_rules in enumerate(rules) for rule in client_rules]
        lines.write_text("\n".join(expressions))
        memory = ("-XX:+UseSerialGC", "-Xms1g", "-Xmx4g")
        self._process = JavaProcess("FilterBench.java", engine, str(messages), str(lines), options=memory)

    def seconds(self) -> float:
        return self._process.numbers("run")[0] / 1e9

    def check(self) -> Result:
        answer = np.array(self._process.numbers(f"check {self._groups}"), np.int64)
        return answer[::2], answer[1::2]

    def peak(self) -> int:
        return greatest_mib(self._process.pid)

    def close(self) -> None:
        self._process.close()
        self._folder.cleanup()
