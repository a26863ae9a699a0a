"""Consume queue entries of one topic, with the message properties that filters read."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.frozen import frozen
from filtering.java import parse_long
from filtering.names import LMQ_QUEUE_ID, is_lmq
from filtering.rocketmq_version import RocketMQVersion

if TYPE_CHECKING:
    from filtering.matcher.column import Column

_HAS_NO_ENTRY = 0x4
"""In sysFlag, of prepared (0x4) and rolled back (0xC) messages, but not of committed ones (0x8; MessageSysFlag)."""

MULTI_DISPATCH, MULTI_QUEUE_OFFSET = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
"""The properties of a message with the names of more queues that get an entry for it, and with its offset in each.

The broker writes the offsets when it stores the message, if it has enableMultiDispatch and, from 5.0 on, enableLmq.
"""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Queue = tuple[str, int]
"""A topic and a queue id."""


def has_entry(sys_flag: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether messages get a consume queue entry, by their sysFlag (CommitLogDispatcherBuildConsumeQueue).

    Prepared and rolled back transaction messages get none.
    """
    result: npt.NDArray[np.bool_] = np.asarray(sys_flag) & _HAS_NO_ENTRY == 0
    return result


def is_given_up(handed_out_before: npt.NDArray[Any], most_attempts: int | Int64s) -> npt.NDArray[np.bool_]:
    """Whether each message was handed out so often before that it is given up (DEAD) instead of handed out again."""
    result: npt.NDArray[np.bool_] = handed_out_before >= most_attempts
    return result


def among(values: Int64s, ascending: Int64s) -> npt.NDArray[np.bool_]:
    """Whether each value is in ``ascending``."""
    if len(values):  # of a block, mostly: the few that are near stay in the processor's cache
        low, high = np.searchsorted(ascending, values.min()), np.searchsorted(ascending, values.max(), "right")
        ascending = ascending[low:high]
    is_among: npt.NDArray[np.bool_] = positions_in(ascending, values) >= 0
    return is_among


def positions_in(ascending: Int64s, values: Int64s) -> Int64s:
    """The position of each value in ``ascending``; -1 if it is not there."""
    if not len(ascending):
        return np.full(len(values), -1, np.int64)
    at: Int64s = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    at[ascending[at] != values] = -1
    return at


@frozen(eq=False)
class Entries:
    """n entries of one topic, ordered by queue and queue offset.

    Arrays have n elements. ``store_timestamp`` is in ms. ``properties`` has the messages' properties by name, at
    least those that filters read. ``bit_maps`` (binary) are the filter bit maps, null for entries without one; None:
    they are not calculated yet. ``rows``: the same entries as filter hooks see them; None without hooks.
    ``without_body``: the positions of messages that are known to have no body, ascending. ``reconsume_times``: how
    often each was sent back or redelivered before; None: never.
    """

    topic: str
    queue_id: Int32s
    queue_offset: Int64s
    commitlog_offset: Int64s
    size: Int32s
    tags_code: Int64s
    store_timestamp: Int64s
    properties: Mapping[str, Column]
    bit_maps: pa.BinaryArray | None = None
    rows: pa.RecordBatch | None = None
    without_body: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    reconsume_times: Int32s | None = None

    def __len__(self) -> int:
        return len(self.queue_id)

    @cached_property
    def queue_bounds(self) -> tuple[Int32s, Int64s]:
        """The queue ids, and the bounds of their entries: queue i has entries bounds[i] to bounds[i + 1], exclusive."""
        starts = np.append(0, np.flatnonzero(np.diff(self.queue_id)) + 1) if len(self) else np.empty(0, np.int64)
        return self.queue_id[starts], np.append(starts, len(self)).astype(np.int64)


@frozen
class MultiQueue:
    """How far a queue of multi-dispatched messages came.

    ``end`` is the queue offset after the last entry, ``next_noted`` the offset that the broker notes next.
    ``without_entry``: how often the queue was named since the last entry without getting one.
    """

    end: int
    next_noted: int
    without_entry: int = 0

    @classmethod
    def up_to(cls, end: int) -> MultiQueue:
        """A queue in which the broker noted each entry's own offset, as nearly always."""
        return cls(end, end)

    @property
    def is_shifted(self) -> bool:
        """Whether the next entry is not at the offset that its message notes."""
        return (self.next_noted, self.without_entry) != (self.end, 0)


@dataclass
class MultiDispatch:
    """Finds the entries of messages in the queues that MULTI_DISPATCH names. Messages come in the order of the log.

    In files, the broker appends an entry whatever offset the message notes, except one that the queue has passed: a
    name that stands twice leaves no gap. ``in_files``: False for a broker with a database, which has each entry at the
    offset noted. Source: MultiDispatch, ConsumeQueue.multiDispatchLmqQueue, putMessagePositionInfo.

    ``queues``: how far queues came before, and then how far they have come. ``on_disk``: the queues of which the store
    has files; they show a broker of 4.x without enableLmq, where an LMQ has the queue ids of its messages.
    """

    version: RocketMQVersion
    in_files: bool = True
    queues: dict[Queue, MultiQueue] = field(default_factory=dict)
    on_disk: Container[Queue] = frozenset()

    def entries(self, names: str, offsets: str, queue_id: int, is_dispatched: bool) -> Iterator[tuple[str, int, int]]:
        """The name, queue id and queue offset of each entry.

        ``queue_id``: that of the message. ``is_dispatched``: whether the message gets such entries at all.
        """
        named, noted = _split(names), _split(offsets)
        if len(named) != len(noted):
            return
        seen: set[Queue] = set()
        for name, text in zip(named, noted, strict=True):
            offset = parse_long(text)
            has_no_folder = "/" in name and self.in_files and self.version.dispatches_to_plain_names_only
            if not name or offset is None or offset < 0 or has_no_folder:
                continue
            queue = name, self._queue_id(name, queue_id)
            if is_dispatched and queue not in seen and (at := self._append(queue, offset)) is not None:
                yield (*queue, at)
            elif (known := self.queues.get(queue)) and (queue in seen or offset >= known.next_noted):
                self.queues[queue] = replace(known, without_entry=known.without_entry + 1)
            seen.add(queue)

    def _queue_id(self, name: str, queue_id: int) -> int:
        """MixAll.LMQ_QUEUE_ID for an LMQ; the message's for another name, and for one of a broker without enableLmq."""
        return queue_id if not is_lmq(name) or (name, queue_id) in self.on_disk else LMQ_QUEUE_ID

    def _append(self, queue: Queue, noted: int) -> int | None:
        """The queue offset of a new entry; None if the queue has passed ``noted``. At 0, the queue begins again."""
        known = self.queues.get(queue)
        if known is None or noted == 0:
            known = MultiQueue.up_to(noted)
        if noted < known.next_noted:
            return None
        gap = max(0, noted - known.next_noted - known.without_entry)
        at = known.end + gap if self.in_files else noted
        self.queues[queue] = MultiQueue(at + 1, noted + 1)
        return at


def _split(text: str) -> list[str]:
    """As Java's String.split: without the empty texts at the end."""
    return text.rstrip(",").split(",")
