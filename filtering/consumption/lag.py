"""How many messages wait for a group, and how many the broker's metrics would report.

The broker's metrics count the entries behind the committed offset that pass stage 1, its filter on the consume queue.
If there are many entries, it extrapolates from the first ones. Sources: ConsumerLagCalculator (processAllGroup,
calculateMessageCount), DefaultMessageStore.estimateMessageCount, ConsumeQueue.estimateMessageCount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Entries
from filtering.delivery.pull_window import OffsetRange, PullWindow
from filtering.delivery.topic_filters import DELIVERED, TopicFilters
from filtering.matcher import packed_bits
from filtering.names import is_retry_topic
from filtering.subscription_data import SQL92, SUB_ALL, TAG
from filtering.subscriptions.subscription_row import SubscriptionRow


def is_measured(row: SubscriptionRow) -> bool:
    """Whether the broker's metrics have a value: not for groups that left, and not for retry topics."""
    return row.registered and not is_retry_topic(row.topic)


def checks_entries(row: SubscriptionRow, config: BrokerConfig) -> bool:
    """Whether the broker counts the entries that pass stage 1; if not, it counts all."""
    kind = row.expression_type.upper()
    is_filter = kind == SQL92 or (kind == TAG and (row.expression or SUB_ALL) != SUB_ALL)
    return config.estimate_accumulation and is_filter


def checked_range(begin: int, end: int, first: int, config: BrokerConfig) -> OffsetRange:
    """The offsets of the entries that the broker checks between the committed offset and the end of a queue.

    ``first``: the first entry that it has not deleted. If the committed offset is less, the broker moves both ends by
    the difference. Then it finds nothing in the last file, which has no entries up to the new end.
    """
    if begin >= first:
        return begin, end
    entries = config.consume_queue_file_entries
    return first, max(first, end // entries * entries)


@dataclass
class Waiting:
    """The number of messages that a group would get, and when the oldest of them was stored (ms)."""

    messages: int
    oldest_at: int


@dataclass
class Sample:
    """The broker's sample of a queue: entries checked, entries that passed, and whether it stopped early."""

    seen: int = 0
    passed: int = 0
    stopped: bool = False

    def estimate(self, entries: int) -> int:
        """The broker's estimate of how many of ``entries`` entries pass."""
        return int(self.passed * entries / self.seen) if self.stopped else self.passed


@dataclass
class TopicLag:
    """Counts the messages that wait for groups on one topic. Add blocks in the order of the log.

    ``pending`` windows list the offsets that the groups have yet to pull, ``estimated`` windows the offsets of the
    entries that the broker checks. A group has at most one of each kind. Results are kept by window number and queue
    id.
    """

    config: BrokerConfig
    pending: Sequence[PullWindow]
    estimated: Sequence[PullWindow]
    _waiting: dict[tuple[int, int], Waiting] = field(default_factory=dict)
    _samples: dict[tuple[int, int], Sample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._number_pending = {window.consumer_group: i for i, window in enumerate(self.pending)}
        self._number_estimated = {window.consumer_group: i for i, window in enumerate(self.estimated)}
        bit_num = self.config.bloom_filter.m
        self._pending = TopicFilters(bit_num, windows=self.pending)
        self._estimated = TopicFilters(bit_num, windows=self.estimated)

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that the filters read."""
        return self._pending.properties

    def waiting_of(self, consumer_group: str, queue_id: int) -> Waiting | None:
        """The messages that wait for a group in a queue; None if there are none."""
        return self._waiting.get((self._number_pending.get(consumer_group, -1), queue_id))

    def sample_of(self, consumer_group: str, queue_id: int) -> Sample | None:
        """The broker's sample of a queue for a group; None if it counts all entries."""
        number = self._number_estimated.get(consumer_group)
        if number is None or queue_id not in self.estimated[number].offsets:
            return None
        return self._samples.get((number, queue_id), Sample())

    def add(self, entries: Entries) -> None:
        """Adds a block of the topic's entries, with their bit maps."""
        if self.pending:
            self._count(entries)
        if self.estimated:
            self._sample(entries)

    def _count(self, entries: Entries) -> None:
        block = self._pending.run(entries)
        counts = block.counts[:, :, DELIVERED]
        new: set[tuple[int, int]] = set()
        for window, queue in np.argwhere(counts).tolist():
            place = window, int(block.queue_ids[queue])
            if place in self._waiting:
                self._waiting[place].messages += int(counts[window, queue])
            else:
                new.add((window, queue))
        if not new:
            return
        _, bounds = entries.queue_bounds
        windows = {window for window, _ in new}
        for match_set in block.delivered:
            new_windows = windows.intersection(match_set.windows)
            if not new_windows:
                continue
            positions = match_set.positions
            firsts = np.searchsorted(positions, bounds[:-1]).tolist()
            for window, queue in ((window, queue) for window in new_windows for queue in range(len(firsts))):
                if (window, queue) in new:
                    oldest = int(entries.store_timestamp[positions[firsts[queue]]])
                    place = window, int(block.queue_ids[queue])
                    self._waiting[place] = Waiting(int(counts[window, queue]), oldest)

    def _sample(self, entries: Entries) -> None:
        passed = self._estimated.stage1(entries)
        queue_ids, bounds = entries.queue_bounds
        for number, window in enumerate(self.estimated):
            flags: npt.NDArray[np.bool_] | None = None
            for queue, queue_id in enumerate(queue_ids.tolist()):
                if queue_id not in window.offsets:
                    continue
                sample = self._samples.setdefault((number, queue_id), Sample())
                if sample.stopped:
                    continue
                begin, end = bounds[queue], bounds[queue + 1]
                low, high = begin + np.searchsorted(entries.queue_offset[begin:end], window.offsets[queue_id])
                if low < high:
                    flags = packed_bits.unpack(passed[number], len(entries)) if flags is None else flags
                    passes = flags[low:high]
                    if queue_id in window.physical_ranges:
                        passes = passes[entries.commitlog_offset[low:high] >= window.physical_ranges[queue_id][0]]
                    self._extend(sample, passes)

    def _extend(self, sample: Sample, passes: npt.NDArray[np.bool_]) -> None:
        """Adds entries to the sample, as many as the broker would check."""
        most_scanned, most_matches = self.config.max_consume_queue_scan, self.config.sample_count_threshold
        passes = passes[: max(1, most_scanned - sample.seen)]
        enough = np.flatnonzero(passes)[max(0, most_matches - sample.passed) :]
        if len(enough):
            passes = passes[: int(enough[0]) + 1]
        sample.seen += len(passes)
        sample.passed += int(passes.sum())
        sample.stopped = sample.seen >= most_scanned or sample.passed > most_matches
