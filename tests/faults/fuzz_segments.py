"""./spark-submit.sh python -m tests.faults.fuzz_segments: reads mutated segments of a real broker.

Each segment gets one to five mutations: bits, noise, zeros, copied pieces, numbers in the header of a record, or a cut.
No read may fail or take long. Every byte must be part of a message, damage or the end, and every message without a
mutation must be kept.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schemas.rocketmq_store.commitlog_walk import Records, scan
from schemas.rocketmq_store.message_decoder import SCHEMA, decode
from schemas.rocketmq_store.segments import Segment, segments
from schemas.storage import Storage
from tests.captures import capture, rows

MOST_SECONDS = 5.0
"""Seconds for one segment of 128 KiB. An endless or quadratic read takes longer."""
MOST_MEMORY = 400
"""The greatest memory of the whole run, MiB; imports take 250 of them."""
Span = tuple[int, int]
NUMBERS = (0, 1, -1, 7, 8, 90, 91, 1 << 16, 1 << 20, (1 << 26) + 1, 2**31 - 1, -(2**31), -626843481, -875286124)
HEADER = tuple(range(0, 88, 4))
"""Positions of four bytes in the header of a record: size, magic code, CRC, …, lengths and hosts."""


@dataclass(frozen=True)
class Sample:
    """A segment, with the position and size of its messages."""

    offset: int
    content: bytes
    messages: Sequence[Span]


@cache
def samples() -> list[Sample]:
    """The segments of the capture ``small``."""
    result = []
    for segment in segments(Storage.at(str(capture("small") / "store"))):
        content = (Path(segment.storage.root) / segment.path).read_bytes()
        spans = [
            (row["physicalOffset"] - segment.offset, row["storeSize"])
            for row in rows("small", "messages")
            if segment.offset <= row["physicalOffset"] < segment.end and not row.get("blank")
        ]
        result.append(Sample(segment.offset, content, spans))
    return result


def flip(log: bytearray, chance: random.Random, _: Sequence[Span]) -> Span:
    at = chance.randrange(len(log))
    log[at] ^= 1 << chance.randrange(8)
    return at, at + 1


def overwrite(log: bytearray, chance: random.Random, _: Sequence[Span]) -> Span:
    at, length = chance.randrange(len(log)), chance.choice((2, 8, 100, 3_000, 30_000))
    length = min(length, len(log) - at)
    kind: Callable[[int], bytes] = chance.choice((chance.randbytes, bytes, lambda size: b"\xff" * size))
    log[at : at + length] = kind(length)
    return at, at + length


def copy_over(log: bytearray, chance: random.Random, messages: Sequence[Span]) -> Span:
    """Copies a piece of the log, often a whole message, to another place."""
    source, length = chance.choice(messages)
    at = chance.randrange(len(log) - length)
    if chance.random() < 0.5:
        source = chance.randrange(len(log) - length)
    log[at : at + length] = log[source : source + length]
    return at, at + length


def renumber(log: bytearray, chance: random.Random, messages: Sequence[Span]) -> Span:
    """Changes a number in the header of a message."""
    at = chance.choice(messages)[0] + chance.choice(HEADER)
    number = chance.choice((*NUMBERS, chance.randrange(-(2**31), 2**31)))
    log[at : at + 4] = struct.pack(">i", number)
    return at, at + 4


def cut(log: bytearray, chance: random.Random, _: Sequence[Span]) -> Span:
    at, length = chance.randrange(1, len(log)), len(log)
    del log[at:]
    return at, length


MUTATIONS = (flip, overwrite, copy_over, renumber, renumber, cut)


def mutated(sample: Sample, chance: random.Random) -> tuple[bytes, list[Span]]:
    """The mutated segment, and the ranges of bytes that were changed."""
    log, touched = bytearray(sample.content), []
    for _ in range(chance.choice((1, 1, 2, 5))):
        inside = [(at, size) for at, size in sample.messages if at + size <= len(log)]
        if inside:
            touched.append(chance.choice(MUTATIONS)(log, chance, inside))
    return bytes(log), touched


def check(sample: Sample, log: bytes, touched: Sequence[Span], folder: Path) -> None:
    """Raises AssertionError if an unchanged message is lost, or some bytes are in no piece."""
    file = folder / f"{sample.offset:020d}"
    file.write_bytes(log)
    kept: dict[int, int] = {}
    pieces: list[Span] = []
    for piece in scan(Segment(sample.offset, file.name, len(log), Storage.at(str(folder)))):
        if isinstance(piece, Records):
            batch = decode(piece, SCHEMA.names)
            positions = (piece.at("start") + piece.offset - sample.offset).tolist()
            sizes = dict(zip(positions, batch.column("store_size").to_pylist(), strict=True))
            kept |= sizes
            pieces += sizes.items()
        else:
            pieces.append((piece.offset - sample.offset, len(piece.bytes)))
            assert piece.bytes == log[piece.offset - sample.offset :][: len(piece.bytes)]
    for at, size in sample.messages:
        if all(at + size <= begin or end <= at for begin, end in touched):
            assert kept.get(at) == size, f"the message at {at} is lost"
    reached = 0
    for at, size in pieces:
        assert at == reached, f"the bytes from {reached} to {at} are in no piece"
        reached = at + size
    assert not any(log[reached:]) or struct.unpack_from(">i", log, reached + 4) == (-875286124,)


def fuzz(count: int, seed: int, folder: Path) -> float:
    """Checks ``count`` mutated segments. Returns the seconds of the slowest one."""
    chance = random.Random(seed)
    slowest = 0.0
    for number in range(count):
        sample = chance.choice(samples())
        log, touched = mutated(sample, chance)
        begun = time.process_time()
        try:
            check(sample, log, touched, folder)
        except Exception as error:
            (folder / "failed").write_bytes(log)
            raise AssertionError(f"seed {seed}, segment {number}, kept in {folder / 'failed'}: {error!r}") from error
        slowest = max(slowest, time.process_time() - begun)
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20_261_121)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    slowest = fuzz(options.segments, options.seed, folder)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{options.segments:,} segments: the slowest took {slowest:.2f} s, {memory} MiB at the most")
    assert slowest < MOST_SECONDS
    assert memory < MOST_MEMORY


if __name__ == "__main__":
    main()
