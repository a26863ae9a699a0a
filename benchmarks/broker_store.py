"""A broker's store of any size: a commit log as a broker writes it.

Messages have the properties of :mod:`benchmarks.workload`, TAGS and UNIQ_KEY. They go round the topics, and in each
topic round the queues. Most bodies are JSON of 20 to 90 bytes; one in 300 has thousands of bytes, three quarters of
these compressed. Segments are preallocated at their full size. The same seed gives the same messages, so a log is the
beginning of any longer one, if both grow by multiples of MESSAGES_AT_ONCE.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from io import BufferedRandom
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks import workload
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.commitlog_walk import body_crcs
from schemas.rocketmq_store.segments import SLACK

BROKER = "broker-a"
TOPICS = ("OrderEvents", "DeviceTelemetry")
QUEUES = 8
SEGMENT = 1 << 30
FIRST_STORE_TIMESTAMP = 1_790_000_000_000
MESSAGES_A_MILLISECOND = 10
MESSAGES_AT_ONCE = 10_000
LARGE_BODIES = 64
LARGE_ONE_IN = 300
TAGS = ["created", "paid", "shipped", "cancelled", "refunded"]
MAGIC, END_OF_SEGMENT = -626843481, -875286124
COMPRESSED = {"zstd": 0x201, "lz4": 0x101, "gzip": 0x301}
"""sysFlag of a compressed body by pyarrow's codec. RocketMQ's third one is zlib, whose bytes no filter looks at."""
LOCALHOST = 0x7F000001
HEADER = np.dtype(
    [
        ("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_timestamp", ">i8"),
        ("born_host", ">i4"), ("born_port", ">i4"), ("store_timestamp", ">i8"), ("store_host", ">i4"),
        ("store_port", ">i4"), ("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_length", ">i4"),
    ]
)  # fmt: skip
"""MessageDecoder's record up to the body; behind the body follow topic (length i1) and properties (length i2)."""


class StoreWriter:
    """Appends messages to the commit log of a store ``folder``. ``messages`` and ``size`` (bytes) are there so far."""

    def __init__(self, folder: Path, segment: int = SEGMENT, topics: Sequence[str] = TOPICS, seed: int = 1) -> None:
        self.messages = 0
        self.size = 0
        self.folder = folder / "commitlog"
        self._segment, self._topics, self._seed = segment, topics, seed
        self.folder.mkdir(parents=True)
        self._bodies = _Bodies(seed)
        self._next_offset: dict[str, int] = {}

    def append(self, count: int) -> None:
        for start in range(0, count, MESSAGES_AT_ONCE):
            self._append(min(MESSAGES_AT_ONCE, count - start))

    def _append(self, count: int) -> None:
        number = np.arange(self.messages, self.messages + count)
        rng = np.random.default_rng([self._seed, self.messages])
        header = np.zeros(count, HEADER)
        topic_of, number_in_topic = number % len(self._topics), number // len(self._topics)
        header["queue_id"], header["queue_offset"] = number_in_topic % QUEUES, number_in_topic // QUEUES
        header["store_timestamp"] = FIRST_STORE_TIMESTAMP + number // MESSAGES_A_MILLISECOND
        bodies, header["sys_flag"], header["crc"] = self._bodies.draw(rng, count)
        topics = pa.array(self._topics).take(pa.array(topic_of))
        self._add(header, topics, bodies, _properties(number, int(rng.integers(1 << 31))))
        self.messages += count

    def append_to(self, topic: str, bodies: Sequence[bytes], properties: Sequence[str]) -> None:
        """Appends messages with these bodies and property texts to the queue 0 of a topic, at the time of the last."""
        header = np.zeros(len(bodies), HEADER)
        first = self._next_offset.get(topic, 0)
        header["queue_offset"] = np.arange(first, first + len(bodies))
        self._next_offset[topic] = first + len(bodies)
        header["store_timestamp"] = FIRST_STORE_TIMESTAMP + self.messages // MESSAGES_A_MILLISECOND
        header["crc"] = [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]
        self._add(header, pa.array([topic] * len(bodies)), pa.array(bodies), pa.array(properties).cast(pa.binary()))

    def _add(
        self, header: NDArray[np.void], topics: pa.StringArray, bodies: pa.BinaryArray, properties: pa.BinaryArray
    ) -> None:
        """Writes records. ``header`` has what differs from message to message."""
        header["magic"], header["born_host"], header["store_host"] = MAGIC, LOCALHOST, LOCALHOST
        header["born_port"], header["store_port"] = 36086, 10911
        header["born_timestamp"] = header["store_timestamp"] - 2
        header["body_length"] = pc.binary_length(bodies).to_numpy()
        topic_lengths = pc.binary_length(topics).to_numpy().astype(np.int8)
        property_lengths = pc.binary_length(properties).to_numpy().astype(">i2")
        tails = pc.binary_join_element_wise(
            bodies, _octets(topic_lengths), topics.cast(pa.binary()), _octets(property_lengths), properties,
            pa.scalar(b"", pa.binary()),
        )  # fmt: skip
        header["size"] = HEADER.itemsize + pc.binary_length(tails).to_numpy()
        self._write(header, tails)

    def _write(self, header: NDArray[np.void], tails: pa.BinaryArray) -> None:
        """Writes records, and begins a segment wherever the next one would leave no room for the end of the last."""
        done = 0
        while done < len(header):
            at, end = self.size, (self.size // self._segment + 1) * self._segment
            ends = at + np.cumsum(header["size"][done:], dtype=np.int64)
            fit = int(np.searchsorted(ends, end - 8, "right"))
            some = header[done : done + fit]
            some["physical_offset"] = np.append(at, ends[: fit - 1]) if fit else []
            records = pc.binary_join_element_wise(_octets(some), tails.slice(done, fit), pa.scalar(b"", pa.binary()))
            done += fit
            with self._open(at) as file:
                file.seek(at % self._segment)
                file.write(_data(records))
                self.size = int(ends[fit - 1]) if fit else at
                if done < len(header):
                    file.write(np.array([end - self.size, END_OF_SEGMENT], ">i4").tobytes())
                    self.size = end

    def _open(self, offset: int) -> BufferedRandom:
        path = self.folder / f"{offset // self._segment * self._segment:020d}"
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(self._segment)
        return path.open("r+b")


class _Bodies:
    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        lines = (
            f'{{"orderId":{order},"sku":"{sku}","name":"{color} {region}"}}'
            for order, sku, color, region in zip(
                rng.integers(1 << 31, size=20_000), rng.integers(100_000, size=20_000),
                rng.choice(workload.COLORS, 20_000), rng.choice(workload.REGIONS, 20_000), strict=True,
            )
        )  # fmt: skip
        text = "".join(lines).encode()
        self._text_end = len(text) - 100
        large, flags = [], []
        for i in range(LARGE_BODIES):
            start = int(rng.integers(len(text) - 20_000))
            body = text[start : start + int(rng.integers(4_000, 20_000))]
            codec = [*COMPRESSED, None][i % 4]
            large.append(body[:3_500] if codec is None else pa.compress(body, codec, asbytes=True))
            flags.append(0 if codec is None else COMPRESSED[codec])
        self._large_lengths, self._large_flags = np.array([len(body) for body in large]), np.array(flags)
        self._large_starts = len(text) + np.cumsum(self._large_lengths) - self._large_lengths
        self._pool = np.frombuffer(text + b"".join(large) + bytes(SLACK), np.uint8)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[pa.BinaryArray, NDArray[np.int64], NDArray[np.int32]]:
        """Bodies, their sysFlags and their CRCs."""
        starts, lengths = rng.integers(self._text_end, size=count), rng.integers(20, 90, size=count)
        large = np.flatnonzero(rng.integers(LARGE_ONE_IN, size=count) == 0)
        kind = rng.integers(LARGE_BODIES, size=len(large))
        starts[large], lengths[large] = self._large_starts[kind], self._large_lengths[kind]
        flags = np.zeros(count, np.int64)
        flags[large] = self._large_flags[kind]
        bodies = record_layout.binary_array(*record_layout.spans(self._pool, starts, lengths))
        return bodies, flags, body_crcs(self._pool, starts, lengths)


def _properties(number: NDArray[np.int64], seed: int) -> pa.BinaryArray:
    """The properties of messages in RocketMQ's own form: name U+0001 value U+0002 name …"""
    columns = workload.messages(len(number), seed)
    keys = pa.array([f"7F00000100015EED0000{each:012X}" for each in number.tolist()])
    tags = pa.array(TAGS).take(pa.array(number * 7 // 3 % len(TAGS)))
    texts = {"TAGS": tags, "UNIQ_KEY": keys} | dict(zip(columns.schema.names, columns.columns, strict=True))
    pairs = [pc.binary_join_element_wise(name, text, "\2", "\1") for name, text in texts.items()]
    fields = [pc.fill_null(pc.replace_substring(pair, "\1\2", "\2"), "") for pair in pairs]
    return pc.binary_join_element_wise(*fields, "").cast(pa.binary())


def _octets(values: NDArray[np.void]) -> pa.BinaryArray:
    """The bytes of each value of an array."""
    values = np.ascontiguousarray(values)
    buffers = [None, pa.py_buffer(values.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(values.itemsize), len(values), buffers).cast(pa.binary())


def _data(records: pa.BinaryArray) -> memoryview:
    """The bytes of all values, one after another."""
    first, last = records.offset, records.offset + len(records)
    offsets = np.frombuffer(records.buffers()[1], np.int32)
    return memoryview(records.buffers()[2] or b"")[int(offsets[first]) : int(offsets[last])]


def write_store(folder: Path, messages: int, segment: int = SEGMENT, seed: int = 1) -> StoreWriter:
    """A store with so many messages."""
    writer = StoreWriter(folder, segment, seed=seed)
    writer.append(messages)
    return writer
