"""Compares what changed filters would have delivered with what groups received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery import topic_filters
from filtering.delivery.entries import Entries, Int64s, among
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import BEGINNING, OffsetRange, PullWindow
from filtering.delivery.topic_filters import TopicFilters
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
class FilterChange:
    """A changed filter of a group.

    ``received`` are the physical offsets of the messages that the group received, ``dropped`` of those that its
    client's hooks dropped and would drop again; both ascending. By queue id, ``pulled`` has the offsets that the group
    has pulled, ``pending`` those that it has yet to pull. It has pulled all of a queue that ``pulled`` does not list.
    Both are of the entries with physical offsets in ``places``, in queues that began again; ``ended`` has the offsets
    of the entries that the group pulled, or lost, in these queues before, and ``ended_places`` their physical offsets.
    ``in_force`` is the group's filter in force; None: it has none, or the broker refuses its pulls.
    """

    filter: MessageFilter
    received: Int64s
    dropped: Int64s
    pulled: Mapping[int, OffsetRange] = field(default_factory=dict)
    pending: Mapping[int, OffsetRange] = field(default_factory=dict)
    in_force: MessageFilter | None = None
    places: Mapping[int, OffsetRange] = field(default_factory=dict)
    ended: Mapping[int, OffsetRange] = field(default_factory=dict)
    ended_places: Mapping[int, OffsetRange] = field(default_factory=dict)


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

    The windows are, in this order and each for all changes: the new filter on what the group has pulled, also in queues
    before they began again, on what it has yet to pull, and on all messages; then, for changes with a filter in force,
    this one on what the group has pulled, also in those queues, and on all messages.
    """

    def __init__(self, numbered: Sequence[tuple[int, FilterChange]], stored: tuple[int, int]) -> None:
        self._numbered = numbered
        self._stored = stored
        changes = [change for _, change in numbered]
        pulled_windows = [_window(each.filter, stored, each.pulled, False, each.places) for each in changes]
        ended_windows = [_window(each.filter, stored, each.ended, True, each.ended_places) for each in changes]
        pending_windows = [_window(each.filter, stored, each.pending, True, each.places) for each in changes]
        windows = [_window(each.filter, stored, {}, False, {}) for each in changes]
        in_force = [(each.in_force, each) for each in changes if each.in_force is not None]
        pulled_in_force = [_window(filter_, stored, each.pulled, False, each.places) for filter_, each in in_force]
        ended_in_force = [_window(filter_, stored, each.ended, True, each.ended_places) for filter_, each in in_force]
        all_in_force = [_window(filter_, stored, {}, False, {}) for filter_, _ in in_force]
        of_new = [*pulled_windows, *ended_windows, *pending_windows, *windows]
        of_old = [*pulled_in_force, *ended_in_force, *all_in_force]
        self.filters = TopicFilters(_NO_BIT_MAP, windows=[*of_new, *of_old])

    def compare(self, entries: Entries, result: ChangeResult) -> list[pa.RecordBatch]:
        """Adds the counts of a block to ``result``. Returns its rows."""
        block = self.filters.run(entries)
        matched = block.delivered.flags(self.filters.window_count)
        in_time = (entries.store_timestamp >= self._stored[0]) & (entries.store_timestamp < self._stored[1])
        of_changes, of_filters_in_force = np.split(matched, [4 * len(self._numbered)])
        in_force = zip(*np.split(of_filters_in_force, 3), strict=True)
        batches = []
        for window, (number, change) in enumerate(self._numbered):
            pulled, ended, pending, matches = of_changes[window :: len(self._numbered)]
            pulled = pulled | ended
            received = among(entries.commitlog_offset, change.received) & in_time
            dropped = among(entries.commitlog_offset, change.dropped)
            kept, gained, lost = received & matches, pulled & ~received & ~dropped, received & ~matches
            _count_kept(number, entries, kept, result)
            both = [window, window + len(self._numbered)]
            result.scanned[number] += int(block.scanned[block.mask_of[both]].sum())
            result.passed_stage1[number] += int(block.counts[both, :, topic_filters.PASSED_STAGE1].sum())
            result.failed[number] += int(block.counts[both, :, topic_filters.EVALUATION_ERRORS].sum())
            result.pending[number] += int(pending.sum())
            result.stored[number] += int(in_time.sum())
            if change.in_force is not None:
                pulled_before, ended_before, matches_before = next(in_force)
                before, after = pulled_before | ended_before | received & matches_before, pulled | kept
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
    places: Mapping[int, OffsetRange],
) -> PullWindow:
    without_bit_map = replace(message_filter, bit_pos=())
    return PullWindow(without_bit_map, BEGINNING, *stored, None, offsets, only_listed, places)


def _rows(number: int, kind: str, entries: Entries, at: Int64s) -> pa.RecordBatch:
    columns = [pa.repeat(pa.scalar(number, pa.int32()), len(at)), pa.repeat(kind, len(at))]
    columns += [pa.array(getattr(entries, name)[at]) for name in CHANGED.names[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGED)
