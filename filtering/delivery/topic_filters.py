"""Runs all filters of one topic: they give the bit maps of its entries, and the messages that each group gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery import bit_planes, window_loops
from filtering.delivery.block_result import BlockResult
from filtering.delivery.entries import Entries, Int32s, Int64s
from filtering.delivery.entry_masks import EntryMasks
from filtering.delivery.filter_data_in_force import FilterDataInForce
from filtering.delivery.match_sets import MatchSets, distinct_match_sets, distinct_rows
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import BEGINNING, FOREVER, OffsetRange, PullWindow, UncertainChange
from filtering.delivery.uncertain_entries import NumberedChange, uncertain_entries
from filtering.delivery.window_loops import NOTHING
from filtering.matcher import Matcher, Matches, packed_bits
from filtering.matcher.packed_bits import Words
from filtering.predicate import TRUE, Predicate

BUFFER_ROWS = 256
"""The number of rows of each buffer that :func:`window_loops.filter_windows` writes to."""
RangeOfQueue = tuple[int, OffsetRange]
"""A queue id and a range of its entries."""
MaskKey = tuple[int, int, tuple[RangeOfQueue, ...], bool, tuple[RangeOfQueue, ...]]
"""stored_from and stored_to (ms, exclusive), queue offsets, whether other queues have no entries, physical offsets."""
ALL = BEGINNING, FOREVER


class TopicFilters:
    """All filters of one topic, compiled, with windows numbered in the order given. Picklable, for Spark's workers."""

    def __init__(
        self,
        bit_num: int,
        filter_data: Sequence[FilterDataInForce] = (),
        windows: Sequence[PullWindow] = (),
        uncertain_changes: Sequence[UncertainChange] = (),
    ) -> None:
        """``bit_num``: the bits of a filter bit map in the broker's configuration. Other bit maps are ignored."""
        self.window_count = len(windows)
        self._bit_num = bit_num
        used = [predicate for window in windows for predicate in _predicates(window.message_filter)]
        used += [data.predicate for data in filter_data]
        used += [predicate for change in uncertain_changes for predicate in (change.before, change.after, change.until)]
        predicates = list(dict.fromkeys([TRUE, *used]))
        number = {predicate: i for i, predicate in enumerate(predicates)}
        self._matcher = Matcher(predicates)
        self._masks: dict[MaskKey, int] = {}
        born_times = sorted({window.message_filter.born_time for window in windows if window.message_filter.bit_pos})
        self._born_times = np.array(born_times, np.int64)
        self._windows = self._window_table(windows, number)
        self._bit_pos = _positions([window.message_filter.bit_pos for window in windows])
        self._filter_predicates = np.array([number[data.predicate] for data in filter_data], np.int32)
        self._filter_masks = np.array(
            [self._mask((data.valid_from, data.valid_to, (), False, ())) for data in filter_data], np.int32
        )
        self._filter_bit_pos = _positions([data.bit_pos for data in filter_data])
        self._uncertain_changes = [
            NumberedChange(
                number[change.before],
                number[change.after],
                number[change.until],
                self._mask(_mask_key(change)),
            )
            for change in uncertain_changes
        ]

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that the filters read."""
        return self._matcher.properties

    def run(self, entries: Entries) -> BlockResult:
        """Runs all filters on a block of entries."""
        matches = self._matcher.match_columns(entries.properties, len(entries), pa.array(entries.tags_code))
        queue_ids, bounds = entries.queue_bounds
        masks = self._fill_masks(entries, queue_ids, bounds)
        if entries.bit_maps is None:
            planes, readable = self._calc_planes(matches.bits, masks, len(entries))
            bit_maps = bit_planes.to_bit_maps(planes, readable) if self._has_filter_data else None
        else:
            planes, readable = bit_planes.from_bit_maps(entries.bit_maps, self._bit_num)
            bit_maps = None
        live_entries = self._fill_live_entries(entries.store_timestamp, readable)
        counts = np.zeros((self.window_count, len(queue_ids), len(window_loops.COUNTS)), np.int64)
        received, dropped = self._filter(matches.bits, planes, live_entries, masks, bounds, counts)
        return BlockResult(
            bit_maps,
            self._delivered(matches, counts, received),
            distinct_match_sets(dropped, len(entries)),
            queue_ids,
            self._windows[:, window_loops.MASK],
            np.array([window_loops.counts_between(mask, bounds[:-1], bounds[1:]) for mask in masks.rows], np.int64)[
                masks.row_of
            ],
            counts,
            uncertain_entries(self._uncertain_changes, matches.bits, masks, entries, bounds),
        )

    def stage1(self, entries: Entries) -> Words:
        """The entries that pass stage 1: packed bits (windows x words). Raises ValueError without filter bit maps."""
        if entries.bit_maps is None:
            raise ValueError("stage 1 needs the entries' filter bit maps")
        bits = self._matcher.match_columns({}, len(entries), pa.array(entries.tags_code)).bits
        planes, readable = bit_planes.from_bit_maps(entries.bit_maps, self._bit_num)
        live_entries = self._fill_live_entries(entries.store_timestamp, readable)
        passed = bits[self._windows[:, window_loops.TAGS]]
        for i, (window, positions) in enumerate(zip(self._windows, self._bit_pos, strict=True)):
            live = window[window_loops.LIVE]
            if live >= 0:
                passed[i] &= (
                    np.bitwise_and.reduce(planes[positions], axis=0) | ~live_entries.rows[live_entries.row_of[live]]
                )
        return passed

    def _window_table(self, windows: Sequence[PullWindow], number: Mapping[Predicate, int]) -> Int32s:
        """A row for each window, with the columns of window_loops. MASK and LIVE are numbers of masks."""
        filters = [window.message_filter for window in windows]
        live_number = {born_time: i for i, born_time in enumerate(self._born_times.tolist())}
        table = np.empty((len(windows), 6), np.int32)
        table[:, window_loops.TAGS] = [number[message_filter.tags] for message_filter in filters]
        table[:, window_loops.EXPRESSION] = [number[message_filter.expression] for message_filter in filters]
        table[:, window_loops.CLIENT_TAGS] = [number[message_filter.client_tags] for message_filter in filters]
        table[:, window_loops.FAILURE] = [number[message_filter.failure] for message_filter in filters]
        table[:, window_loops.MASK] = [self._mask(_mask_key(window)) for window in windows]
        table[:, window_loops.LIVE] = [
            live_number[message_filter.born_time] if message_filter.bit_pos else -1 for message_filter in filters
        ]
        return table

    @property
    def _has_filter_data(self) -> bool:
        return len(self._filter_predicates) > 0

    def _mask(self, key: MaskKey) -> int:
        return self._masks.setdefault(key, len(self._masks))

    def _fill_masks(self, entries: Entries, queue_ids: Int32s, bounds: Int64s) -> EntryMasks:
        """The entries that each mask selects. Most masks select all entries of a block, or none."""
        first, last = int(entries.store_timestamp.min()), int(entries.store_timestamp.max())
        masks = EntryMasks(len(self._masks), np.ones(len(entries), bool))
        for number, (stored_from, stored_to, offsets, only_listed, places) in enumerate(self._masks):
            if stored_to <= first or last < stored_from:
                masks.row_of[number] = NOTHING
            elif offsets or only_listed or places or first < stored_from or stored_to <= last:
                low, high = _ranges(queue_ids, offsets, (0, 0) if only_listed else ALL)
                mask = masks.add(number)
                window_loops.fill_mask(
                    entries.store_timestamp, entries.queue_offset, bounds, stored_from, stored_to, low, high, mask
                )
                if places:
                    window_loops.clear_elsewhere(
                        entries.commitlog_offset, bounds, *_ranges(queue_ids, places, ALL), mask
                    )
        return masks

    def _fill_live_entries(self, store_timestamps: Int64s, readable: npt.NDArray[np.bool_]) -> EntryMasks:
        """For each born time, the entries whose bit map is used by filters born then: those stored later."""
        first, last = int(store_timestamps.min()), int(store_timestamps.max())
        live_entries = EntryMasks(len(self._born_times), readable)
        for number, born_time in enumerate(self._born_times.tolist()):
            if last <= born_time:
                live_entries.row_of[number] = NOTHING
            elif first <= born_time:
                live_entries.add(number)[:] = packed_bits.pack((store_timestamps > born_time) & readable)
        return live_entries

    def _calc_planes(self, bits: Words, masks: EntryMasks, rows: int) -> tuple[Words, npt.NDArray[np.bool_]]:
        """The planes of the bit maps, and which entries have one: those stored while the topic had filter data."""
        planes = np.zeros((self._bit_num, bits.shape[1]), np.uint64)
        if not self._has_filter_data:
            return planes, np.zeros(rows, bool)
        mask_of = masks.row_of[self._filter_masks]
        bit_planes.fill_planes(bits, self._filter_predicates, masks.rows, mask_of, self._filter_bit_pos, planes)
        present = np.bitwise_or.reduce(masks.rows[np.unique(mask_of)], axis=0)
        return planes, packed_bits.unpack(present, rows)

    def _filter(
        self, bits: Words, planes: Words, live_entries: EntryMasks, masks: EntryMasks, bounds: Int64s, counts: Int64s
    ) -> tuple[list[tuple[Int32s, Words]], list[tuple[Int32s, Words]]]:
        """What windows received if it differs from what their expression matches, and what their clients dropped."""
        received: list[tuple[Int32s, Words]] = []
        dropped: list[tuple[Int32s, Words]] = []
        windows = self._windows.copy()
        windows[:, window_loops.MASK] = masks.row_of[windows[:, window_loops.MASK]]
        with_live = windows[:, window_loops.LIVE] >= 0
        windows[with_live, window_loops.LIVE] = live_entries.row_of[windows[with_live, window_loops.LIVE]]
        done = 0
        while done < self.window_count:
            own, lost = (np.empty((BUFFER_ROWS, bits.shape[1]), np.uint64) for _ in range(2))
            own_of, lost_of = np.empty(BUFFER_ROWS, np.int32), np.empty(BUFFER_ROWS, np.int32)
            done, owned, losing = window_loops.filter_windows(
                windows, done, bits, planes, self._bit_pos, live_entries.rows, masks.rows, bounds, counts,
                own, own_of, lost, lost_of,
            )  # fmt: skip
            received.append((own_of[:owned], own[:owned]))
            dropped.append((lost_of[:losing], lost[:losing]))
        return received, dropped

    def _delivered(self, matches: Matches, counts: Int64s, received: list[tuple[Int32s, Words]]) -> MatchSets:
        """Most windows received what their expression matches; the others are in ``received``."""
        delivered = counts[:, :, window_loops.DELIVERED].sum(axis=1)
        other = distinct_rows(received)
        is_other = np.zeros(self.window_count, bool)
        is_other[other.windows] = True
        plain = np.flatnonzero((delivered > 0) & ~is_other)
        bits = np.concatenate([matches.bits, other.bits]) if len(other.windows) else matches.bits
        windows = np.append(plain, other.windows)
        chosen = np.append(self._windows[plain, window_loops.EXPRESSION], len(matches.bits) + other.chosen)
        return MatchSets.shared(windows, chosen, bits, np.append(matches.counts(), other.counts), matches.rows)


def _predicates(message_filter: MessageFilter) -> tuple[Predicate, Predicate, Predicate, Predicate]:
    return message_filter.tags, message_filter.expression, message_filter.client_tags, message_filter.failure


def _mask_key(window: PullWindow | UncertainChange) -> MaskKey:
    offsets, places = (tuple(sorted(ranges.items())) for ranges in (window.offsets, window.places))
    return window.stored_from, window.stored_to, offsets, window.only_listed, places


def _ranges(queue_ids: Int32s, listed: Iterable[RangeOfQueue], unlisted: OffsetRange) -> tuple[Int64s, Int64s]:
    """The beginnings and the ends of the ranges of some queues."""
    by_queue = dict(listed)
    ranges = [by_queue.get(queue_id, unlisted) for queue_id in queue_ids.tolist()]
    low, high = np.ascontiguousarray(np.array(ranges, np.int64).reshape(-1, 2).T)
    return low, high


def _positions(bit_pos: Sequence[tuple[int, ...]]) -> Int64s:
    """One row of bit positions for each filter. A filter without positions has zeros, which are never used."""
    width = max(map(len, bit_pos), default=0)
    return np.array([positions or (0,) * width for positions in bit_pos], np.int64).reshape(len(bit_pos), width)
