"""RocketMQ's own night: the reput of a log, and one full pull of each group, by its own classes in one JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.broker_store import BROKER, FIRST_STORE_TIMESTAMP, MESSAGES_AT_ONCE, SEGMENT, write_store
from benchmarks.java_process import JavaProcess
from schemas.deliveries import DELIVERY_BLOCKS, pairs_of
from schemas.delta.warehouse import Warehouse

EVALUATIONS = 1e7
"""Filters on messages that the pulls, or the bit maps, of a measurement take."""
Subscription = tuple[str, str, str]
"""Group, topic and expression."""


@dataclass(frozen=True)
class RocketMQNight:
    """Seconds of a whole night, from ``messages`` and ``groups`` that were measured; 0: sampling was not needed.

    ``reput`` is one thread in a broker; here it counts as if it ran on all cores, which the logs of several brokers
    would. ``pulls`` ran on all cores.
    """

    reput: float
    pulls: float
    messages: int
    groups: int

    @property
    def seconds(self) -> float:
        return self.reput + self.pulls


def sample_of(messages: int, groups: int, with_bit_map: bool, topics: int, cores: int) -> tuple[int, int]:
    """So many messages and groups are measured. Without bit maps the reput does not depend on groups: all messages."""
    if with_bit_map:
        most = int(EVALUATIONS * 3 * topics / groups) // MESSAGES_AT_ONCE * MESSAGES_AT_ONCE
        messages = min(messages, max(MESSAGES_AT_ONCE, most))
    return messages, min(groups, max(2 * cores, int(EVALUATIONS * topics / messages)))


def rocketmq_night(
    store: Path, messages: int, subscriptions: Sequence[Subscription], with_bit_map: bool, cores: int, warehouse: Path
) -> RocketMQNight:
    """Raises AssertionError where it delivers other messages to the sampled groups than the warehouse has."""
    topics = len({topic for _, topic, _ in subscriptions})
    some, sampled = sample_of(messages, len(subscriptions), with_bit_map, topics, cores)
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        warm = write_store(Path(folder) / "warm", min(messages, 2 * MESSAGES_AT_ONCE), seed=2)
        log, end = store, None
        if some < messages:
            log = Path(folder) / "sample"
            end = write_store(log, some).size
        pairs = Path(folder) / "pairs"
        lines = Path(folder) / "subscriptions"
        lines.write_text("\n".join("\t".join(each) for each in subscriptions))
        arguments = (
            str(warm.folder), str(log / "commitlog"), str(SEGMENT), str(lines), str(with_bit_map).lower(),
            str(sampled), str(cores), str(FIRST_STORE_TIMESTAMP - 1), str(pairs),
        )  # fmt: skip
        with JavaProcess("NightBench.java", *arguments, options=("-Xmx4g",)) as java:
            reput, pulls = (nanoseconds / 1e9 for nanoseconds in java.numbers(""))
        theirs = np.fromfile(pairs, ">i8").reshape(-1, 3)
    ours = delivered(warehouse, [group for group, _, _ in subscriptions[:sampled]], end)
    assert len(theirs), "RocketMQ delivers nothing"
    assert (_sorted(theirs) == _sorted(ours)).all(), "the night delivers other messages than RocketMQ"
    scale = messages / some
    return RocketMQNight(reput * scale / cores, pulls * scale * len(subscriptions) / sampled, some, sampled)


def delivered(warehouse: Path, groups: Sequence[str], end: int | None) -> NDArray[np.int64]:
    """Number of the group, queue id and queue offset of all deliveries before the physical offset ``end``."""
    opened = Warehouse.at(str(warehouse))
    number = {group: i for i, group in enumerate(groups)}
    parts = [np.empty((0, 3), np.int64)]
    for file in opened.files(DELIVERY_BLOCKS, BROKER):
        for pairs in pairs_of(opened.rows(DELIVERY_BLOCKS, files=[file]), number.keys()):
            if end is not None:
                pairs = pairs.filter(pc.less(pairs["commitlog_offset"], end))
            group_numbers = np.array([number[name] for name in pairs["consumer_group"].to_pylist()], np.int64)
            parts.append(np.column_stack([group_numbers, pairs["queue_id"], pairs["queue_offset"]]))
    return np.concatenate(parts)


def _sorted(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    return pairs[np.lexsort(pairs.T[::-1])].astype(np.int64)
