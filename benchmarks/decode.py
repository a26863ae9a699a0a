"""Decoding a commit log on one core: ours, and RocketMQ's own MessageDecoder, in one run.

    python -m benchmarks.decode [--gigabytes 1] [--rounds 5] [--output DIR]

The log is the dev capture repeated, each record with its own physical offset. Both decode every record with its
properties, with and without copying the body, and never decompress it; rounds alternate. Needs Java 17 and Maven.
Writes decode.json.
"""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.java_process import JavaProcess
from benchmarks.report import parser, write
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.commitlog_walk import Records, scan
from schemas.rocketmq_store.message_decoder import SCHEMA, decode
from schemas.rocketmq_store.record_layout import PHYSICAL_OFFSET
from schemas.rocketmq_store.segments import Segment, segments
from schemas.storage import Storage
from tests.captures import capture

WITH_BODY = [name for name in SCHEMA.names if name != "body_crc_computed"]
WITHOUT_BODY = [name for name in WITH_BODY if name != "body"]


def write_log(file: Path, gigabytes: float) -> Segment:
    """Repeats the records of the dev capture until there are so many bytes."""
    chunks = [piece for segment in segments(Storage.at(str(capture("dev") / "store"))) for piece in scan(segment)]
    records = [chunk for chunk in chunks if isinstance(chunk, Records)]
    spans = [record_layout.spans(chunk.log, chunk.at("start"), chunk.at("size")) for chunk in records]
    block = np.concatenate([data for _, data in spans])
    sizes = np.concatenate([np.diff(offsets) for offsets, _ in spans])
    starts = np.cumsum(sizes) - sizes
    fields = (starts + PHYSICAL_OFFSET)[:, None] + np.arange(8)
    written = 0
    with open(file, "wb") as out:
        while written < gigabytes * 1e9:
            block[fields] = (starts + written).astype(">i8").view(np.uint8).reshape(-1, 8)
            out.write(block.data)
            written += len(block)
    return Segment(0, file.name, written, Storage.at(str(file.parent)))


def ours(segment: Segment, columns: list[str]) -> tuple[int, float]:
    """Messages decoded, and seconds."""
    start = perf_counter()
    messages = 0
    for records in scan(segment):
        assert isinstance(records, Records)
        messages += decode(records, columns).num_rows
    return messages, perf_counter() - start


class RocketMQ:
    """A Java process that decodes the file once for each line it is told: ``true`` with bodies, ``false`` without."""

    def __init__(self, segment: Segment):
        self._process = JavaProcess("DecodeBench.java", f"{segment.storage.root}/{segment.path}", options=("-Xmx2g",))

    def decode(self, body: bool) -> tuple[int, float]:
        """Messages decoded, and seconds."""
        messages, nanoseconds = self._process.numbers(str(body).lower())
        return messages, nanoseconds / 1e9


def compare(rounds: int, sides: dict[str, Callable[[], tuple[int, float]]]) -> dict[str, float]:
    """Million messages a second of each side, the median of rounds that alternate, after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    counts = set()
    for turn in range(rounds + 1):
        for name, run in sides.items():
            messages, seconds = run()
            counts.add(messages)
            if turn:
                times[name].append(messages / seconds / 1e6)
    assert len(counts) == 1, f"the two do not decode the same messages: {counts}"
    return {name: round(median(speeds), 3) for name, speeds in times.items()}


def main() -> None:
    command_line = parser(__doc__, rounds=5)
    command_line.add_argument("--gigabytes", type=float, default=1.0)
    options = command_line.parse_args()
    results: dict[str, dict[str, float]] = {}
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        segment = write_log(Path(folder) / f"{0:020d}", options.gigabytes)
        rocketmq = RocketMQ(segment)
        for name, columns, body in (("with body", WITH_BODY, True), ("without body", WITHOUT_BODY, False)):
            speeds = compare(
                options.rounds,
                {
                    "MessageDecoder": partial(rocketmq.decode, body),
                    "mqsieve": partial(ours, segment, columns),
                },
            )
            results[name] = speeds | {"ratio": round(speeds["mqsieve"] / speeds["MessageDecoder"], 2)}
            print(f"{name}, million messages/s:", ", ".join(f"{side} {of}" for side, of in results[name].items()))
    write(options.output, "decode", {"rounds": options.rounds, "bytes": segment.size, "million messages/s": results})


if __name__ == "__main__":
    main()
