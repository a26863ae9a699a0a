"""How many messages wait for a group, and what the broker itself would say.

The broker's metrics count entries behind the committed offset that pass its first filter, on the consume queue
alone, and extrapolate from the first ones where there are many. Sources: ConsumerLagCalculator.calculateMessageCount,
ConsumeQueue.estimateMessageCount, MessageStoreConfig.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from filtering.delivery import bit_planes
from filtering.delivery.entries import Entries
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.delivery.window_loops import COUNTS

MOST_SCANNED = 20_000
"""maxConsumeQueueScan: entries that the broker looks at for one estimate."""
MOST_MATCHES = 5_000
"""sampleCountThreshold: with more matches it stops looking, too."""
_DELIVERED = COUNTS.index("delivered")
Place = tuple[int, int]
"""The number of a window, of which a group has one of each kind, and a queue id."""


@dataclass
class Waiting:
    """The messages that a group would get, and when the oldest of them was stored (ms)."""

    messages: int
    oldest_at: int


@dataclass
class Sample:
    """What the broker saw of a queue: entries it looked at, those that passed, and whether it stopped early."""

    seen: int = 0
    passed: int = 0
    stopped: bool = False

    def estimate(self, entries: int) -> int:
        """The broker's estimate of the passing ones of ``entries``."""
        return int(self.passed * entries / self.seen) if self.stopped else self.passed


@dataclass
class TopicLag:
    """Counts what waits for groups on one topic, block by block, in the order of the log.

    ``pending`` windows list the offsets that the groups have yet to pull, ``estimated`` ones those that the broker
    counts; no group has two of one kind.
    """

    bit_num: int
    pending: Sequence[PullWindow]
    estimated: Sequence[PullWindow]
    _waiting: dict[Place, Waiting] = field(default_factory=dict)
    _samples: dict[Place, Sample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._number_pending = {window.consumer_group: i for i, window in enumerate(self.pending)}
        self._number_estimated = {window.consumer_group: i for i, window in enumerate(self.estimated)}
        self._pending = TopicFilters(self.bit_num, windows=self.pending)
        self._estimated = TopicFilters(self.bit_num, windows=self.estimated)

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that the filters read."""
        return self._pending.properties

    def waiting_of(self, consumer_group: str, queue_id: int) -> Waiting | None:
        """What waits for a group in a queue, None where nothing does."""
        return self._waiting.get((self._number_pending.get(consumer_group, -1), queue_id))

    def sample_of(self, consumer_group: str, queue_id: int) -> Sample | None:
        """What the broker sees of a queue for a group, None where it counts all entries."""
        return self._samples.get((self._number_estimated.get(consumer_group, -1), queue_id))

    def add(self, entries: Entries) -> None:
        """Entries of the topic with their bit maps."""
        if self.pending:
            self._count(entries)
        if self.estimated:
            self._sample(entries)

    def _count(self, entries: Entries) -> None:
        outcome = self._pending.run(entries)
        counts = outcome.counts[:, :, _DELIVERED]
        new: set[Place] = set()
        for window, queue in np.argwhere(counts).tolist():
            place = window, int(outcome.queue_ids[queue])
            if place in self._waiting:
                self._waiting[place].messages += int(counts[window, queue])
            else:
                new.add((window, queue))
        if not new:
            return
        _, bounds = entries.queue_bounds()
        windows = {window for window, _ in new}
        for same in outcome.delivered:
            wanted = windows.intersection(same.windows)
            if not wanted:
                continue
            positions = same.positions
            firsts = np.searchsorted(positions, bounds[:-1]).tolist()
            for window, queue in ((window, queue) for window in wanted for queue in range(len(firsts))):
                if (window, queue) in new:
                    oldest = int(entries.store_timestamp[positions[firsts[queue]]])
                    place = window, int(outcome.queue_ids[queue])
                    self._waiting[place] = Waiting(int(counts[window, queue]), oldest)

    def _sample(self, entries: Entries) -> None:
        passed = self._estimated.stage1(entries)
        queue_ids, bounds = entries.queue_bounds()
        for window, each in enumerate(self.estimated):
            flags: npt.NDArray[np.bool_] | None = None
            for queue, queue_id in enumerate(queue_ids.tolist()):
                if queue_id not in each.offsets:
                    continue
                sample = self._samples.setdefault((window, queue_id), Sample())
                if sample.stopped:
                    continue
                begin, end = bounds[queue], bounds[queue + 1]
                low, high = begin + np.searchsorted(entries.queue_offset[begin:end], each.offsets[queue_id])
                if low < high:
                    flags = bit_planes.unpack(passed[window], len(entries)) if flags is None else flags
                    _look(sample, flags[low:high])


def _look(sample: Sample, passes: npt.NDArray[np.bool_]) -> None:
    """The broker looks at some more entries."""
    passes = passes[: MOST_SCANNED - sample.seen]
    enough = np.flatnonzero(passes)[MOST_MATCHES - sample.passed :]
    if len(enough):
        passes = passes[: int(enough[0]) + 1]
    sample.seen += len(passes)
    sample.passed += int(passes.sum())
    sample.stopped = sample.seen >= MOST_SCANNED or sample.passed > MOST_MATCHES
