"""Compares what changed filters would have delivered with what groups received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery import topic_filters
from filtering.delivery.entries import Entries, Int64s, among
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import BEGINNING, EVERYWHERE, OffsetRange, PullWindow, is_about
from filtering.delivery.topic_filters import TopicFilters, ranges_of
from filtering.time_spans import DAY

GAINED, LOST = "gained", "lost"
CHANGED = pa.schema(
    [
        ("change", pa.int32()),
        ("kind", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("commitlog_offset", pa.int64()),
        ("store_timestamp", pa.int64()),
    ]
)
"""One row for each message that a group would gain or lose by a change; times in ms."""
_NO_BIT_MAP = 0


@dataclass(frozen=True, eq=False)
class LogOfNights:
    """Which night first filtered which messages. Nights are numbered in order.

    ``ends``: by night, the physical offset up to which it filtered new messages. ``late``: the physical offsets of
    messages that a night could not read, ascending; ``filtered_in``: the later nights that first filtered them.
    """

    ends: Int64s
    late: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    filtered_in: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def nights(self, commitlog_offset: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """The night of each message, and whether it came late. A message after the last night has the next number."""
        is_late = among(commitlog_offset, self.late)
        night = np.searchsorted(self.ends, commitlog_offset, side="right")
        night[is_late] = self.filtered_in[np.searchsorted(self.late, commitlog_offset[is_late])]
        return night, is_late


@dataclass(frozen=True, eq=False)
class PulledMessages:
    """The messages that a group pulled: those that ``windows`` cover, each with the number of its night.

    The group has also pulled all messages of the queues that ``known_queues`` does not list; None: it lists all.
    """

    log: LogOfNights
    windows: Sequence[tuple[int, PullWindow]]
    known_queues: Collection[int] | None = None

    def among(self, entries: Entries) -> npt.NDArray[np.bool_]:
        """Whether the group pulled each entry of a block."""
        queue_ids, bounds = entries.queue_bounds
        sizes = np.diff(bounds)
        first, is_late = self.log.nights(entries.commitlog_offset)
        known = queue_ids if self.known_queues is None else list(self.known_queues)
        pulled: npt.NDArray[np.bool_] = ~np.repeat(np.isin(queue_ids, known), sizes)
        begin, end = int(entries.store_timestamp.min()), int(entries.store_timestamp.max())
        for night, window in self.windows:
            if end < window.stored_from or window.stored_to <= begin:
                continue
            flags = is_about(window.kind, night, first, is_late) & (first < len(self.log.ends))
            if not flags.any():
                continue
            low, high = ranges_of(queue_ids, window.offsets.items(), (0, 0) if window.only_listed else EVERYWHERE)
            flags &= (window.stored_from <= entries.store_timestamp) & (entries.store_timestamp < window.stored_to)
            flags &= (np.repeat(low, sizes) <= entries.queue_offset) & (entries.queue_offset < np.repeat(high, sizes))
            if window.physical_ranges:
                low, high = ranges_of(queue_ids, window.physical_ranges.items(), EVERYWHERE)
                flags &= np.repeat(low, sizes) <= entries.commitlog_offset
                flags &= entries.commitlog_offset < np.repeat(high, sizes)
            pulled |= flags
        return pulled


@dataclass(frozen=True, eq=False)
class FilterChange:
    """A changed filter of a group.

    ``received`` are the physical offsets of the messages that the group received, ``dropped`` of those that its
    client's hooks dropped and would drop again; both ascending. ``pulled``: what the group has pulled; None: all. By
    queue id, ``pending`` has the offsets that it has yet to pull, of the entries with physical offsets in
    ``physical_ranges``, in queues that began again.
    ``in_force`` is the group's filter in force; None: it has none, or the broker refuses its pulls.
    """

    filter: MessageFilter
    received: Int64s
    dropped: Int64s
    pulled: PulledMessages | None = None
    pending: Mapping[int, OffsetRange] = field(default_factory=dict)
    in_force: MessageFilter | None = None
    physical_ranges: Mapping[int, OffsetRange] = field(default_factory=dict)


@dataclass(eq=False)
class ChangeResult:
    """The effect of changes. ``rows`` has the columns of CHANGED.

    ``kept`` counts the messages that a change keeps, by (change, day since the epoch, queue id). The other counters
    are by change: ``scanned`` entries, entries that ``passed_stage1`` (the tags code; the filter bit map is not used),
    messages on which the expression ``failed``, and messages that match and that the group has yet to pull
    (``pending``). ``stored`` counts the entries of the topic.

    Against the filter in force, as if it had always been, a change has ``new_gains`` and ``new_losses``. The filter in
    force itself would gain and lose ``same_gains`` and ``same_losses`` of ``rows``.
    """

    rows: pa.Table = field(default_factory=CHANGED.empty_table)
    kept: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    scanned: Counter[int] = field(default_factory=Counter)
    passed_stage1: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    pending: Counter[int] = field(default_factory=Counter)
    stored: Counter[int] = field(default_factory=Counter)
    new_gains: Counter[int] = field(default_factory=Counter)
    new_losses: Counter[int] = field(default_factory=Counter)
    same_gains: Counter[int] = field(default_factory=Counter)
    same_losses: Counter[int] = field(default_factory=Counter)

    def add(self, other: ChangeResult) -> None:
        """Adds the rows and the counts of other messages."""
        self.rows = pa.concat_tables([self.rows, other.rows])
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))


_COUNTERS = [each.name for each in fields(ChangeResult) if each.name != "rows"]


class FilterChanges:
    """Compares changed filters with deliveries. Picklable, so that Spark can send it to its workers."""

    def __init__(self, changes: Sequence[FilterChange], stored: tuple[int, int]) -> None:
        """``stored``: only messages stored in this interval count (ms, end exclusive)."""
        self._by_topic = {
            topic: _ChangesOfTopic(
                [(i, change) for i, change in enumerate(changes) if change.filter.topic == topic], stored
            )
            for topic in {change.filter.topic for change in changes}
        }

    @property
    def properties(self) -> dict[str, tuple[str, ...]]:
        """The message properties that are read, by topic."""
        return {topic: topic_changes.filters.properties for topic, topic_changes in self._by_topic.items()}

    def __call__(self, blocks: Iterable[Entries]) -> ChangeResult:
        result = ChangeResult()
        batches = []
        for entries in blocks:
            batches += self._by_topic[entries.topic].compare(entries, result)
        result.rows = pa.Table.from_batches(batches, CHANGED)
        return result


class _ChangesOfTopic:
    """The changes of one topic, each with its number among all changes. They run as pull windows of one TopicFilters.

    The windows are, in this order and each for all changes: the new filter on what the group has pulled, on what it has
    yet to pull, and on all messages; then, for changes with a filter in force, this one on all messages.
    """

    def __init__(self, numbered: Sequence[tuple[int, FilterChange]], stored: tuple[int, int]) -> None:
        self._numbered = numbered
        self._stored = stored
        changes = [change for _, change in numbered]
        windows = [_window(filter_change.filter, stored, {}, False, {}) for filter_change in changes]
        pending_windows = [
            _window(filter_change.filter, stored, filter_change.pending, True, filter_change.physical_ranges)
            for filter_change in changes
        ]
        in_force = [
            _window(filter_change.in_force, stored, {}, False, {})
            for filter_change in changes
            if filter_change.in_force is not None
        ]
        self.filters = TopicFilters(_NO_BIT_MAP, windows=[*windows, *pending_windows, *windows, *in_force])

    def compare(self, entries: Entries, result: ChangeResult) -> list[pa.RecordBatch]:
        """Adds the counts of a block to ``result``. Returns its rows."""
        all_pulled = {
            window: change.pulled.among(entries)
            for window, (_, change) in enumerate(self._numbered)
            if change.pulled is not None
        }
        block = self.filters.run(entries, all_pulled)
        matched = block.delivered.flags(self.filters.window_count)
        in_time = (entries.store_timestamp >= self._stored[0]) & (entries.store_timestamp < self._stored[1])
        change_flags, flags_in_force = np.split(matched, [3 * len(self._numbered)])
        in_force = iter(flags_in_force)
        batches = []
        for window, (number, change) in enumerate(self._numbered):
            pulled, pending, matches = change_flags[window :: len(self._numbered)]
            received = among(entries.commitlog_offset, change.received) & in_time
            dropped = among(entries.commitlog_offset, change.dropped)
            kept, gained, lost = received & matches, pulled & ~received & ~dropped, received & ~matches
            _count_kept(number, entries, kept, result)
            result.scanned[number] += int(block.scanned[block.mask_of[window]].sum())
            result.passed_stage1[number] += int(block.counts[window, :, topic_filters.PASSED_STAGE1].sum())
            result.failed[number] += int(block.counts[window, :, topic_filters.EVALUATION_ERRORS].sum())
            result.pending[number] += int(pending.sum())
            result.stored[number] += int(in_time.sum())
            if change.in_force is not None:
                before = next(in_force) & (all_pulled.get(window, np.True_) | received)
                after = pulled | kept
                result.new_gains[number] += int((after & ~before & ~dropped).sum())
                result.new_losses[number] += int((before & ~after & ~dropped).sum())
                result.same_gains[number] += int((gained & before).sum())
                result.same_losses[number] += int((lost & ~before).sum())
            for kind, flags in ((GAINED, gained), (LOST, lost)):
                if flags.any():
                    batches.append(_rows(number, kind, entries, np.flatnonzero(flags)))
        return batches


def _count_kept(number: int, entries: Entries, kept: npt.NDArray[np.bool_], result: ChangeResult) -> None:
    days, queue_ids = entries.store_timestamp[kept] // DAY, entries.queue_id[kept]
    keys, counts = np.unique(np.stack([days, queue_ids]), axis=1, return_counts=True)
    for day, queue_id, count in zip(*keys.tolist(), counts.tolist(), strict=True):
        result.kept[number, day, queue_id] += count


def _window(
    message_filter: MessageFilter,
    stored: tuple[int, int],
    offsets: Mapping[int, OffsetRange],
    only_listed: bool,
    physical_ranges: Mapping[int, OffsetRange],
) -> PullWindow:
    without_bit_map = replace(message_filter, bit_pos=())
    return PullWindow(without_bit_map, BEGINNING, *stored, None, offsets, only_listed, physical_ranges)


def _rows(number: int, kind: str, entries: Entries, at: Int64s) -> pa.RecordBatch:
    columns = [pa.repeat(pa.scalar(number, pa.int32()), len(at)), pa.repeat(kind, len(at))]
    columns += [pa.array(getattr(entries, name)[at]) for name in CHANGED.names[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGED)
