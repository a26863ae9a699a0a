"""Reads a copy of a broker's store: its log, queues, consumer offsets and subscriptions."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from filtering.consumption.offsets import BrokerOffsets
from filtering.subscriptions.events import GroupTopic
from filtering.time_spans import DAY
from schemas.rocketmq_store.commitlog.commitlog_walk import Records, Walk, first_piece
from schemas.rocketmq_store.commitlog.log_end import checkpoint
from schemas.rocketmq_store.commitlog.segments import Segment, segments
from schemas.rocketmq_store.config_files import (
    VersionsInStore,
    broker_name,
    read_consumer_offsets,
    read_topics,
    saves_time_of_offsets,
    versions_in_store,
)
from schemas.rocketmq_store.consumequeue.queue_index import queue_index
from schemas.rocketmq_store.gather import longs
from schemas.storage import Storage

LAST_BYTES = 1 << 20
REMOTE_READS = 16
"""Queues of a store in an object store whose entries are looked up at the same time."""
MOST_IDLE = 366 * DAY
"""Milliseconds. A time that is this much later than the last message is ignored."""


@dataclass(frozen=True)
class StoreSnapshot:
    """A copy of a broker's store. ``storage`` is the store folder, or its commitlog folder."""

    storage: Storage

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments of the log, in order. Raises CommitLogError if there are none."""
        return segments(self.storage)

    def check(self) -> None:
        """Raises CommitLogError if there is no log, OSError if it cannot be read."""
        for segment in self.segments:
            with segment.open():
                pass

    @cached_property
    def taken_at(self) -> int:
        """The earliest time (ms) at which the snapshot can have been taken: the latest time in its files.

        0 if the log has no message: there is no other time to hold the rest against.
        """
        _, committed_at = self._committed
        return self._latest(committed_at or 0, checkpoint(self.storage)[0])

    def _latest(self, *others: int) -> int:
        """The latest of the last store time and other times (ms), without those that are too late to be right."""
        last = self._last_store_timestamp
        return max([last, *(time for time in others if time < last + MOST_IDLE)])

    @cached_property
    def _last_store_timestamp(self) -> int:
        """The latest store time of the last messages, without outliers from damaged records."""
        for segment in reversed(self.segments):
            end = segment.data_end
            if end > segment.offset:
                walk = Walk(segment, max(segment.offset, end - LAST_BYTES), segment.end, end, synchronise=True)
                found = [longs(piece.log, piece.at("store_timestamp")) for piece in walk if isinstance(piece, Records)]
                if found:
                    times = np.concatenate(found)
                    return int(times[times <= np.median(times) + DAY].max())
        return 0

    @cached_property
    def broker_name(self) -> str | None:
        """The brokerName; None if the store does not have it. Raises CommitLogError if there is no log."""
        return broker_name(read_topics(self.storage)) if self.segments else None

    @cached_property
    def versions(self) -> VersionsInStore | None:
        """What the files show of the broker's version; None if they show nothing."""
        return versions_in_store(self.storage)

    @cached_property
    def _committed(self) -> tuple[dict[GroupTopic, dict[int, int]], int | None]:
        """The committed offsets, and when the broker saved them (ms); None: not known.

        A broker of 4.x does not write the time, but saves every 5 s: the newest time in the snapshot counts.
        """
        committed, saved_at = read_consumer_offsets(self.storage) or ({}, None)
        if committed and self._is_estimated:
            saved_at = self._latest(checkpoint(self.storage)[0]) or None
        return committed, saved_at

    @cached_property
    def _is_estimated(self) -> bool:
        return not saves_time_of_offsets(self.storage)

    @property
    def fingerprint(self) -> str:
        """A hash of the committed offsets. It changes when consumers commit."""
        committed, _ = self._committed
        text = repr(sorted((key, sorted(queues.items())) for key, queues in committed.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @cached_property
    def offsets(self) -> BrokerOffsets:
        """The queues and the consumer offsets in the snapshot."""
        committed, committed_at = self._committed
        index, log_start = queue_index(self.storage), self.segments[0].offset
        min_offsets: defaultdict[str, dict[int, int]] = defaultdict(dict)

        def min_offset(queue: tuple[str, int]) -> int:
            return index.min_offset(*queue, log_start)

        with ThreadPoolExecutor(1 if self.storage.is_local else REMOTE_READS) as threads:
            for (topic, queue_id), offset in zip(index.queues, threads.map(min_offset, index.queues), strict=True):
                min_offsets[topic][queue_id] = offset

        def stored_at(topic: str, queue_id: int, offset: int) -> int | None:
            entry = index.entry(topic, queue_id, offset)
            return None if entry is None else self._stored_at(entry.commitlog_offset)

        return BrokerOffsets(
            committed,
            committed_at,
            min_offsets,
            read_topics(self.storage),
            stored_at=stored_at,
            log_start=log_start,
            is_estimated=self._is_estimated,
        )

    def _stored_at(self, commitlog_offset: int) -> int | None:
        """The store time (ms) of the message at a physical offset; 0 if it was deleted, None if it is damaged."""
        if commitlog_offset < self.segments[0].offset:
            return 0
        for segment in self.segments:
            if segment.offset <= commitlog_offset < segment.end:
                piece = first_piece(segment, commitlog_offset)
                if isinstance(piece, Records):
                    return int(longs(piece.log, piece.at("store_timestamp"))[0])
        return None
