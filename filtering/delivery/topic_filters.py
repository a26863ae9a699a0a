"""Runs all filters of one topic on blocks of entries: they give the filter bit maps, and the messages of each group.

A block is up to about 65,536 consume queue entries of a topic, by queue, with the properties of their messages
(Entries). TopicFilters.run does for a block what a broker and its clients do message by message:

1. One match of all predicates: the tags, the expression, the client's tags and the failures of each window, and the
   predicates of filter data. Bits over the messages of the block, 64 a word.
2. *Masks* (EntryMasks): the entries that each pull window selects by store time, queue offset and physical offset. Most
   windows select all entries of a block or none, and share a row of bits.
3. *Planes*: a plane has one bit position of the bit maps of many messages. If the entries are new, their bit maps are
   calculated (CommitLogDispatcherCalcBitMap): the matches of each filter, ORed into the planes of its Bloom bits. If
   they are stored, the planes are read from them.
4. For each window (``filter_windows``): stage 1 is mask AND tags AND all planes of the filter's Bloom bits, these only
   for messages stored after the filter was born (ExpressionMessageFilter.isMatchedByConsumeQueue); stage 2 adds the
   expression; the client's check adds its tags. Each is a few ANDs a word. The loop counts what passes in each queue,
   and keeps the bits of a window only if they differ from the matches of its expression.
   What a group that pops was handed out too often is given up, not delivered.
5. The groups that received the same messages share their positions (MatchSets).
6. What a changed subscription left uncertain is counted (UncertainEntries).

The result is a BlockResult. :meth:`TopicFilters.stage1` asks for stage 1 only, as the broker's lag metrics do.
Filter hooks of users come later, in :mod:`jobs.night.tasks`: they see what this delivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery.delivery_blocks import MatchSet, MatchSets, distinct_match_sets, distinct_rows
from filtering.delivery.entries import Entries, Int32s, Int64s, among, is_given_up
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import (
    EVERYWHERE,
    NO_END,
    FilterDataInForce,
    PullWindow,
    RangeOfQueue,
    UncertainRange,
    ranges_of,
)
from filtering.frozen import frozen
from filtering.kernels.compile import Array, compiled
from filtering.kernels.registers import count_ones
from filtering.matcher import Matcher, Matches, packed_bits
from filtering.matcher.packed_bits import Words, words
from filtering.predicate import TRUE, Predicate
from filtering.pulls import DEFAULT_BATCH

# The windows of a block: the three filters, over packed bits.


WINDOW_COUNTS = (
    "passed_stage1", "passed_stage2", "delivered", "bit_map_false_positives", "evaluation_errors", "dropped_by_hook",
    "uncertain", "dead",
)  # fmt: skip
(
    PASSED_STAGE1, PASSED_STAGE2, DELIVERED, BIT_MAP_FALSE_POSITIVES, EVALUATION_ERRORS, DROPPED_BY_HOOK, UNCERTAIN,
    DEAD,
) = range(len(WINDOW_COUNTS))  # fmt: skip
TAGS, EXPRESSION, CLIENT_TAGS, FAILURE, MASK, LIVE = COLUMNS = range(6)
"""The columns of ``windows``: rows of BlockBits: four matches, a mask, and the live entries (-1: no bit map)."""
BUFFER_ROWS = 256
"""The number of windows whose bits :func:`filter_windows` keeps at once."""
ALL_ENTRIES, NO_ENTRIES = 0, 1
"""The first two rows of ``masks`` and ``live_entries``."""

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled
def count_range(bits: Array, start: int, end: int) -> int:
    """The number of set bits of ``bits`` in positions [start, end)."""
    if start >= end:
        return 0
    first, last = start >> 6, (end - 1) >> 6
    head = _ALL << np.uint64(start & 63)
    tail = _ALL >> np.uint64(63 - ((end - 1) & 63))
    if first == last:
        return int(count_ones(bits[first] & head & tail))
    ones = count_ones(bits[first] & head) + count_ones(bits[last] & tail)
    for word in range(first + 1, last):
        ones += count_ones(bits[word])
    return int(ones)


def counts_between(bits: Array, starts: Array, ends: Array) -> list[int]:
    """The number of set bits of ``bits`` in each range [start, end)."""
    return [count_range(bits, start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@compiled
def fill_mask(
    times: Array,
    queue_offsets: Array,
    bounds: Array,
    stored_from: int,
    stored_to: int,
    offsets_from: Array,
    offsets_to: Array,
    mask: Array,
) -> None:
    """Sets the bits of entries in a time window and in the offset range of their queue. ``mask`` must be all zeros."""
    for queue in range(len(bounds) - 1):
        low, high = offsets_from[queue], offsets_to[queue]
        for row in range(bounds[queue], bounds[queue + 1]):
            if stored_from <= times[row] < stored_to and low <= queue_offsets[row] < high:
                mask[row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled
def clear_elsewhere(commitlog_offsets: Array, bounds: Array, first: Array, end: Array, mask: Array) -> None:
    """Clears the bits of entries whose physical offset is outside the range of their queue."""
    for queue in range(len(bounds) - 1):
        low, high = first[queue], end[queue]
        for row in range(bounds[queue], bounds[queue + 1]):
            if not low <= commitlog_offsets[row] < high:
                mask[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))


class BlockBits(NamedTuple):
    """Packed bits over the entries of a block, which windows combine.

    ``matches``: a row for each predicate; ``planes``: for each position of the filter bit map; ``masks``: for each
    range of entries; ``live_entries``: for each born time, the entries whose bit map is used
    (ConsumerFilterData.isMsgInLive).
    """

    matches: Words
    planes: Words
    masks: Words
    live_entries: Words


class BitsOfWindows(NamedTuple):
    """A buffer of BUFFER_ROWS rows of packed bits, each with the number of its window."""

    bits: Words
    windows: Int32s

    @classmethod
    def empty(cls, words: int) -> BitsOfWindows:
        return cls(np.empty((BUFFER_ROWS, words), np.uint64), np.empty(BUFFER_ROWS, np.int32))


@compiled
def filter_windows(
    windows: Array,
    first: int,
    block: BlockBits,
    bit_pos: Array,
    bounds: Array,
    counts: Array,
    received: BitsOfWindows,
    dropped: BitsOfWindows,
) -> tuple[int, int, int]:
    """Runs the windows from ``first`` on until one of the buffers is full.

    ``bit_pos``: windows x positions. ``counts`` (windows x queues x WINDOW_COUNTS) is filled; no hook drops entries
    here. If a window did not receive just the matches of its expression, its entries go to ``received``. Those that its
    client dropped go to ``dropped``. Returns the first window that is not done, and the number of rows used of both
    buffers.
    """
    bits, planes = block.matches, block.planes
    words = bits.shape[1]
    stage1, stage2 = np.empty(words, np.uint64), np.empty(words, np.uint64)
    false_positives, failed = np.empty(words, np.uint64), np.empty(words, np.uint64)
    has_bits = np.empty(words, np.uint64)
    received_rows = dropped_rows = 0
    for window in range(first, len(windows)):
        if received_rows == len(received.bits) or dropped_rows == len(dropped.bits):
            return window, received_rows, dropped_rows
        if windows[window, MASK] == NO_ENTRIES:
            continue
        tags, expression = bits[windows[window, TAGS]], bits[windows[window, EXPRESSION]]
        client, failure = bits[windows[window, CLIENT_TAGS]], bits[windows[window, FAILURE]]
        mask, live_row = block.masks[windows[window, MASK]], windows[window, LIVE]
        result, client_drops = received.bits[received_rows], dropped.bits[dropped_rows]
        differs = drops = fails = false_hits = np.uint64(0)
        for word in range(words):
            stage1[word] = tags[word] & mask[word]
        if live_row >= 0:
            bit_map_used = block.live_entries[live_row]
            for word in range(words):  # Numba takes seconds to compile has_bits[:] = bit_map_used.
                has_bits[word] = bit_map_used[word]
            for position in bit_pos[window]:
                _and(has_bits, planes[position])
            for word in range(words):
                passes = stage1[word] & (has_bits[word] | ~bit_map_used[word])
                stage1[word] = passes
                false_positives[word] = passes & bit_map_used[word] & ~expression[word]
                false_hits |= false_positives[word]
        for word in range(words):
            returned = stage1[word] & expression[word]
            stage2[word] = returned
            result[word] = returned & client[word]
            client_drops[word] = returned & ~client[word]
            failed[word] = failure[word] & mask[word]
            differs |= result[word] ^ expression[word]
            drops |= client_drops[word]
            fails |= failed[word]
        any_received = False
        for queue in range(len(bounds) - 1):
            start, end = bounds[queue], bounds[queue + 1]
            cell = counts[window, queue]
            cell[PASSED_STAGE1] = count_range(stage1, start, end)
            cell[PASSED_STAGE2] = count_range(stage2, start, end)
            cell[DELIVERED] = count_range(result, start, end) if drops else cell[PASSED_STAGE2]
            if false_hits:
                cell[BIT_MAP_FALSE_POSITIVES] = count_range(false_positives, start, end)
            if fails:
                cell[EVALUATION_ERRORS] = count_range(failed, start, end)
            any_received |= cell[DELIVERED] > 0
        if differs and any_received:
            received.windows[received_rows] = window
            received_rows += 1
        if drops:
            dropped.windows[dropped_rows] = window
            dropped_rows += 1
    return len(windows), received_rows, dropped_rows


@compiled
def _and(bits: Array, other: Array) -> None:
    for word in range(len(bits)):
        bits[word] &= other[word]


# Masks. Those that select all entries, or none, share a row of bits.


class EntryMasks:
    """Masks by number. Mask ``number`` has the packed bits ``rows[row_of[number]]``."""

    def __init__(self, numbers: int, everything: npt.NDArray[np.bool_]) -> None:
        self.row_of = np.full(numbers, ALL_ENTRIES, np.int32)
        all_bits = packed_bits.pack(everything)
        # Room for all: the system gives memory to rows only when they are written.
        self._room = np.zeros((numbers + 2, len(all_bits)), np.uint64)
        self._room[ALL_ENTRIES] = all_bits
        self._used = 2

    def add(self, number: int) -> Words:
        """Gives mask ``number`` its own row. Returns the row, all zeros."""
        self.row_of[number] = self._used
        self._used += 1
        row: Words = self._room[self._used - 1]
        return row

    @property
    def rows(self) -> Words:
        """The rows: that of all entries, that of none, and those that were added."""
        rows: Words = self._room[: self._used]
        return rows


# Uncertain entries.


class NumberedRange(NamedTuple):
    """An UncertainRange, as the numbers of its predicates and of the mask of its time."""

    before: int
    after: int
    until: int
    mask: int


@frozen(eq=False)
class UncertainEntries:
    """The uncertain entries of one queue in one block.

    ``first`` is the queue offset of the block's first entry. For each UncertainRange, ``counts`` has the number of
    uncertain entries, and ``ends`` the queue offset of the first entry that matches ``until``, or NO_END.
    """

    first: int
    counts: Int64s
    ends: Int64s

    def __bool__(self) -> bool:
        return bool(self.counts.any() or (self.ends < NO_END).any())


def uncertain_entries(
    ranges: Sequence[NumberedRange], bits: Words, masks: EntryMasks, entries: Entries, bounds: Int64s
) -> list[UncertainEntries]:
    """An item for each queue, or none without ``ranges``. ``bits``: the matches of entries (predicates x words)."""
    if not ranges:
        return []
    queue_offsets = entries.queue_offset
    counts = np.zeros((len(ranges), len(bounds) - 1), np.int64)
    ends = np.full_like(counts, NO_END)
    for i, each in enumerate(ranges):
        in_time = masks.rows[masks.row_of[each.mask]]
        stops = _first_matches(bits[each.until] & in_time, bounds)
        differing = (bits[each.before] ^ bits[each.after]) & in_time
        is_end = stops < bounds[1:]
        counts[i] = counts_between(differing, bounds[:-1], stops + is_end)
        ends[i, is_end] = queue_offsets[stops[is_end]]
    return [
        UncertainEntries(int(queue_offsets[start]), counts[:, i], ends[:, i])
        for i, start in enumerate(bounds[:-1].tolist())
    ]


def count_uncertain(blocks: Sequence[UncertainEntries]) -> Int64s:
    """The number of uncertain entries of one queue for each UncertainRange. ``blocks``: at least one, in any order."""
    end = np.min([block.ends for block in blocks], axis=0)
    counts: Int64s = np.sum([np.where(block.first <= end, block.counts, 0) for block in blocks], axis=0)
    return counts


def count_lost_pulls(delivered: MatchSets, entries: Entries, counts: Int64s) -> None:
    """Adds the messages beside one without a body to the uncertain ones of ``counts``.

    ``counts``: windows x queues x WINDOW_COUNTS.
    A Java client up to 5.2.0 fails on such a pull, and its listener gets no message of it (ProcessQueue.putMessage).
    A pull has up to DEFAULT_BATCH messages. Those in other blocks are not counted.
    """
    _, bounds = entries.queue_bounds
    for match_set in delivered:
        positions = match_set.positions
        empty = np.flatnonzero(among(positions.astype(np.int64), entries.without_body))
        if not len(empty):
            continue
        queue_starts = np.searchsorted(positions, bounds)
        queues = np.searchsorted(queue_starts, empty, side="right") - 1
        first = np.maximum(empty - DEFAULT_BATCH + 1, queue_starts[queues])
        end = np.minimum(empty + DEFAULT_BATCH, queue_starts[queues + 1])
        is_near = np.zeros(len(positions) + 1, np.int64)
        np.add.at(is_near, first, 1)
        np.add.at(is_near, end, -1)
        near = np.append(0, np.cumsum(np.cumsum(is_near[:-1]) > 0))
        counts[list(match_set.windows), :, UNCERTAIN] += np.diff(near[queue_starts])


def _first_matches(bits: Words, bounds: Int64s) -> Int64s:
    """The first set bit of each queue, or else its end."""
    if not bits.any():
        return bounds[1:]
    matching = np.append(np.flatnonzero(packed_bits.unpack(bits, int(bounds[-1]))), bounds[-1])
    stops: Int64s = np.minimum(matching[np.searchsorted(matching, bounds[:-1])], bounds[1:])
    return stops


@frozen(eq=False)
class BlockResult:
    """The result for a block of entries.

    ``bit_maps``: the calculated filter bit maps (binary, null without filter data); None if the entries had bit maps.
    ``scanned`` (masks x queues): the number of entries that each mask selects; window i has mask ``mask_of[i]``.
    ``counts`` (windows x queues x WINDOW_COUNTS) counts entries; no hook has dropped one yet. ``uncertain`` has
    an item for each queue, or none without uncertain ranges. ``dead``: what was handed out once too often.
    """

    bit_maps: pa.BinaryArray | None
    delivered: MatchSets
    dead: MatchSets
    dropped_by_client: MatchSets
    queue_ids: Int32s
    mask_of: Int32s
    scanned: Int64s
    counts: Int64s
    uncertain: Sequence[UncertainEntries]


def without_dead(
    delivered: MatchSets, most_attempts: Int64s, entries: Entries, counts: Int64s
) -> tuple[MatchSets, MatchSets]:
    """Splits deliveries into those that clients got, and those that were given up. The latter are counted as such.

    ``most_attempts``: of each window. ``counts``: windows x queues x WINDOW_COUNTS.
    """
    handed_out_before = entries.reconsume_times
    nothing = MatchSets.of([], delivered.rows)
    if handed_out_before is None or not is_given_up(handed_out_before, most_attempts.min(initial=NO_LIMIT)).any():
        return delivered, nothing
    _, bounds = entries.queue_bounds
    kept: list[MatchSet] = []
    dead: list[MatchSet] = []
    for match_set in delivered:
        windows = np.array(match_set.windows)
        most = most_attempts[windows]
        for limit in np.unique(most).tolist():
            limited = tuple(windows[most == limit].tolist())
            is_gone = is_given_up(handed_out_before, limit)
            for bits, sets in ((packed_bits.pack(~is_gone), kept), (packed_bits.pack(is_gone), dead)):
                own = match_set.bits & bits
                if count := int(np.bitwise_count(own).sum()):
                    sets.append(MatchSet(limited, own, count, match_set.rows))
                    if sets is dead:
                        counts[list(limited), :, DEAD] = counts_between(own, bounds[:-1], bounds[1:])
    counts[:, :, DELIVERED] -= counts[:, :, DEAD]
    return MatchSets.of(kept, delivered.rows), MatchSets.of(dead, delivered.rows)


# Planes.


Octets = npt.NDArray[np.uint8]
_BYTE = np.uint64(0xFF)
_SWAPS = (
    (np.uint64(7), np.uint64(0x00AA00AA00AA00AA)),
    (np.uint64(14), np.uint64(0x0000CCCC0000CCCC)),
    (np.uint64(28), np.uint64(0x00000000F0F0F0F0)),
)


def to_bit_maps(planes: Words, present: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Planes, shape (bit_num, words), to one binary of bit_num / 8 bytes for each message; null if not present."""
    rows, width = len(present), planes.shape[0] // 8
    octets = np.empty((words(rows) * 64, width), np.uint8)
    _transpose(planes, octets)
    kept = octets[:rows] if present.all() else octets[:rows][present]
    offsets = np.append(0, np.cumsum(present, dtype=np.int32) * width).astype(np.int32)
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(kept))]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def from_bit_maps(bit_maps: pa.Array, bit_num: int) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Bit maps (binary) to planes of shape (bit_num, words), and which bit maps were read, shape (rows,).

    A bit map that is null or has another length is not read, and its bits are zero.
    """
    rows, width = len(bit_maps), bit_num // 8
    planes = np.zeros((bit_num, words(rows)), np.uint64)
    if bit_maps.null_count == rows:
        return planes, np.zeros(rows, bool)
    offsets = np.frombuffer(bit_maps.buffers()[1], np.int32, rows + 1, bit_maps.offset * 4)
    readable = np.asarray(bit_maps.is_valid()) & (np.diff(offsets) == width)
    octets = np.zeros((words(rows) * 64, width), np.uint8)
    if readable.any():
        stored = np.frombuffer(bit_maps.buffers()[2], np.uint8)
        octets[:rows][readable] = stored[offsets[:-1][readable][:, None] + np.arange(width)]
    _transpose_back(octets, planes)
    return planes, readable


@compiled
def fill_planes(bits: Words, predicates: Any, masks: Words, mask_of: Any, bit_pos: Any, planes: Words) -> None:
    """For each filter, set the bits ``bit_pos`` of the messages that its predicate matches and its mask selects."""
    for i in range(len(predicates)):
        matched, mask = bits[predicates[i]], masks[mask_of[i]]
        for position in bit_pos[i]:
            plane = planes[position]
            for word in range(len(plane)):
                plane[word] |= matched[word] & mask[word]


@compiled
def _transpose(planes: Words, octets: Octets) -> None:
    for word in range(planes.shape[1]):
        for byte in range(planes.shape[0] // 8):
            for group in range(8):
                square = np.uint64(0)
                for i in range(8):
                    square |= ((planes[8 * byte + i, word] >> np.uint64(8 * group)) & _BYTE) << np.uint64(8 * i)
                square = _transposed(square)
                for i in range(8):
                    octets[64 * word + 8 * group + i, byte] = np.uint8(square >> np.uint64(8 * i))


@compiled
def _transpose_back(octets: Octets, planes: Words) -> None:
    for word in range(planes.shape[1]):
        for byte in range(planes.shape[0] // 8):
            for group in range(8):
                square = np.uint64(0)
                for i in range(8):
                    square |= np.uint64(octets[64 * word + 8 * group + i, byte]) << np.uint64(8 * i)
                square = _transposed(square)
                for i in range(8):
                    planes[8 * byte + i, word] |= ((square >> np.uint64(8 * i)) & _BYTE) << np.uint64(8 * group)


@compiled
def _transposed(square: np.uint64) -> np.uint64:
    """Transposes an 8 x 8 matrix of bits, with a byte for each row (Warren, Hacker's Delight, 7-3)."""
    for shift, kept in _SWAPS:
        swapped = (square ^ (square >> shift)) & kept
        square = square ^ swapped ^ (swapped << shift)
    return square


# The filters of a topic.


MaskKey = tuple[int, int, tuple[RangeOfQueue, ...], bool, tuple[RangeOfQueue, ...]]
"""stored_from and stored_to (ms, exclusive), queue offsets, whether other queues have no entries, physical offsets."""
NO_LIMIT = int(np.iinfo(np.int64).max)
"""Of the attempts to deliver a message."""


class TopicFilters:
    """All filters of one topic, compiled, with windows numbered in the order given. Picklable, for Spark's workers."""

    def __init__(
        self,
        bit_num: int,
        filter_data: Sequence[FilterDataInForce] = (),
        windows: Sequence[PullWindow] = (),
        uncertain_ranges: Sequence[UncertainRange] = (),
    ) -> None:
        """``bit_num``: the bits of a filter bit map in the broker's configuration. Other bit maps are ignored."""
        self.window_count = len(windows)
        self._bit_num = bit_num
        used = [predicate for window in windows for predicate in _predicates(window.message_filter)]
        used += [data.predicate for data in filter_data]
        used += [predicate for each in uncertain_ranges for predicate in (each.before, each.after, each.until)]
        predicates = list(dict.fromkeys([TRUE, *used]))
        number = {predicate: i for i, predicate in enumerate(predicates)}
        self._matcher = Matcher(predicates)
        self._masks: dict[MaskKey, int] = {}
        born_times = sorted({window.message_filter.born_time for window in windows if window.message_filter.bit_pos})
        self._born_times = np.array(born_times, np.int64)
        self._windows = self._window_table(windows, number)
        most = [window.message_filter.most_attempts for window in windows]
        self._most_attempts = np.array([NO_LIMIT if limit is None else limit for limit in most], np.int64)
        self._bit_pos = _positions([window.message_filter.bit_pos for window in windows])
        self._filter_predicates = np.array([number[data.predicate] for data in filter_data], np.int32)
        self._filter_masks = np.array(
            [self._mask((data.valid_from, data.valid_to, (), False, ())) for data in filter_data], np.int32
        )
        self._filter_bit_pos = _positions([data.bit_pos for data in filter_data])
        self._uncertain_ranges = [
            NumberedRange(
                number[each.before],
                number[each.after],
                number[each.until],
                self._mask(mask_key(each)),
            )
            for each in uncertain_ranges
        ]

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that the filters read."""
        return self._matcher.properties

    def run(self, entries: Entries, selected: Mapping[int, npt.NDArray[np.bool_]] | None = None) -> BlockResult:
        """Runs all filters on a block of entries. ``selected``: by number, the only entries of some windows."""
        matches = self._matcher.match_columns(entries.properties, len(entries), pa.array(entries.tags_code))
        queue_ids, bounds = entries.queue_bounds
        masks = self._fill_masks(entries, queue_ids, bounds, len(selected or ()))
        mask_of = self._windows[:, MASK].copy()
        for number, (window, flags) in enumerate((selected or {}).items(), len(self._masks)):
            masks.add(number)[:] = masks.rows[masks.row_of[mask_of[window]]] & packed_bits.pack(flags)
            mask_of[window] = number
        if entries.bit_maps is None:
            planes, readable = self._calc_planes(matches.bits, masks, len(entries))
            bit_maps = to_bit_maps(planes, readable) if self._has_filter_data else None
        else:
            planes, readable = from_bit_maps(entries.bit_maps, self._bit_num)
            bit_maps = None
        live_entries = self._fill_live_entries(entries.store_timestamp, readable)
        counts = np.zeros((self.window_count, len(queue_ids), len(WINDOW_COUNTS)), np.int64)
        block = BlockBits(matches.bits, planes, masks.rows, live_entries.rows)
        received, dropped = self._filter(self._windows_in(masks, mask_of, live_entries), block, bounds, counts)
        delivered = self._delivered(matches, counts, received)
        return BlockResult(
            bit_maps,
            *without_dead(delivered, self._most_attempts, entries, counts),
            distinct_match_sets(dropped, len(entries)),
            queue_ids,
            mask_of,
            np.array([counts_between(mask, bounds[:-1], bounds[1:]) for mask in masks.rows], np.int64)[masks.row_of],
            counts,
            uncertain_entries(self._uncertain_ranges, matches.bits, masks, entries, bounds),
        )

    def stage1(self, entries: Entries) -> Words:
        """The entries that pass stage 1: packed bits (windows x words). Raises ValueError without filter bit maps."""
        if entries.bit_maps is None:
            raise ValueError("stage 1 needs the entries' filter bit maps")
        bits = self._matcher.match_columns({}, len(entries), pa.array(entries.tags_code)).bits
        planes, readable = from_bit_maps(entries.bit_maps, self._bit_num)
        live_entries = self._fill_live_entries(entries.store_timestamp, readable)
        passed = bits[self._windows[:, TAGS]]
        for i, (window, positions) in enumerate(zip(self._windows, self._bit_pos, strict=True)):
            live = window[LIVE]
            if live >= 0:
                passed[i] &= (
                    np.bitwise_and.reduce(planes[positions], axis=0) | ~live_entries.rows[live_entries.row_of[live]]
                )
        return passed

    def _window_table(self, windows: Sequence[PullWindow], number: Mapping[Predicate, int]) -> Int32s:
        """A row for each window: its columns are TAGS to LIVE. MASK and LIVE are numbers of masks."""
        filters = [window.message_filter for window in windows]
        live_number = {born_time: i for i, born_time in enumerate(self._born_times.tolist())}
        table = np.empty((len(windows), len(COLUMNS)), np.int32)
        table[:, TAGS] = [number[message_filter.tags] for message_filter in filters]
        table[:, EXPRESSION] = [number[message_filter.expression] for message_filter in filters]
        table[:, CLIENT_TAGS] = [number[message_filter.client_tags] for message_filter in filters]
        table[:, FAILURE] = [number[message_filter.failure] for message_filter in filters]
        table[:, MASK] = [self._mask(mask_key(window)) for window in windows]
        table[:, LIVE] = [
            live_number[message_filter.born_time] if message_filter.bit_pos else -1 for message_filter in filters
        ]
        return table

    @property
    def _has_filter_data(self) -> bool:
        return len(self._filter_predicates) > 0

    def _mask(self, key: MaskKey) -> int:
        return self._masks.setdefault(key, len(self._masks))

    def _fill_masks(self, entries: Entries, queue_ids: Int32s, bounds: Int64s, more: int) -> EntryMasks:
        """The entries that each mask selects, with room for ``more``. Most select all entries of a block, or none."""
        first, last = int(entries.store_timestamp.min()), int(entries.store_timestamp.max())
        masks = EntryMasks(len(self._masks) + more, np.ones(len(entries), bool))
        for number, (stored_from, stored_to, offsets, only_listed, physical_ranges) in enumerate(self._masks):
            if stored_to <= first or last < stored_from:
                masks.row_of[number] = NO_ENTRIES
            elif offsets or only_listed or physical_ranges or first < stored_from or stored_to <= last:
                low, high = ranges_of(queue_ids, offsets, (0, 0) if only_listed else EVERYWHERE)
                mask = masks.add(number)
                fill_mask(
                    entries.store_timestamp, entries.queue_offset, bounds, stored_from, stored_to, low, high, mask
                )
                if physical_ranges:
                    clear_elsewhere(
                        entries.commitlog_offset, bounds, *ranges_of(queue_ids, physical_ranges, EVERYWHERE), mask
                    )
        return masks

    def _fill_live_entries(self, store_timestamps: Int64s, readable: npt.NDArray[np.bool_]) -> EntryMasks:
        """For each born time, the entries whose bit map is used by filters born then: those stored later."""
        first, last = int(store_timestamps.min()), int(store_timestamps.max())
        live_entries = EntryMasks(len(self._born_times), readable)
        for number, born_time in enumerate(self._born_times.tolist()):
            if last <= born_time:
                live_entries.row_of[number] = NO_ENTRIES
            elif first <= born_time:
                live_entries.add(number)[:] = packed_bits.pack((store_timestamps > born_time) & readable)
        return live_entries

    def _calc_planes(self, bits: Words, masks: EntryMasks, rows: int) -> tuple[Words, npt.NDArray[np.bool_]]:
        """The planes of the bit maps, and which entries have one: those stored while the topic had filter data."""
        planes = np.zeros((self._bit_num, bits.shape[1]), np.uint64)
        if not self._has_filter_data:
            return planes, np.zeros(rows, bool)
        mask_of = masks.row_of[self._filter_masks]
        fill_planes(bits, self._filter_predicates, masks.rows, mask_of, self._filter_bit_pos, planes)
        present = np.bitwise_or.reduce(masks.rows[np.unique(mask_of)], axis=0)
        return planes, packed_bits.unpack(present, rows)

    def _windows_in(self, masks: EntryMasks, mask_of: Int32s, live_entries: EntryMasks) -> Int32s:
        """The table of windows for a block: MASK and LIVE are rows of bits. Window i has mask ``mask_of[i]``."""
        windows = self._windows.copy()
        windows[:, MASK] = masks.row_of[mask_of]
        with_live = windows[:, LIVE] >= 0
        windows[with_live, LIVE] = live_entries.row_of[windows[with_live, LIVE]]
        return windows

    def _filter(
        self, windows: Int32s, block: BlockBits, bounds: Int64s, counts: Int64s
    ) -> tuple[list[tuple[Int32s, Words]], list[tuple[Int32s, Words]]]:
        """What windows received if it differs from what their expression matches, and what their clients dropped."""
        all_received: list[tuple[Int32s, Words]] = []
        all_dropped: list[tuple[Int32s, Words]] = []
        done, words = 0, block.matches.shape[1]
        while done < self.window_count:
            received, dropped = BitsOfWindows.empty(words), BitsOfWindows.empty(words)
            done, received_rows, dropped_rows = filter_windows(
                windows, done, block, self._bit_pos, bounds, counts, received, dropped
            )
            all_received.append((received.windows[:received_rows], received.bits[:received_rows]))
            all_dropped.append((dropped.windows[:dropped_rows], dropped.bits[:dropped_rows]))
        return all_received, all_dropped

    def _delivered(self, matches: Matches, counts: Int64s, received: list[tuple[Int32s, Words]]) -> MatchSets:
        """Most windows received what their expression matches; the others are in ``received``."""
        delivered = counts[:, :, DELIVERED].sum(axis=1)
        other = distinct_rows(received)
        is_other = np.zeros(self.window_count, bool)
        is_other[other.windows] = True
        plain = np.flatnonzero((delivered > 0) & ~is_other)
        bits = np.concatenate([matches.bits, other.bits]) if len(other.windows) else matches.bits
        windows = np.append(plain, other.windows)
        bit_rows = np.append(self._windows[plain, EXPRESSION], len(matches.bits) + other.bit_rows)
        return MatchSets.shared(windows, bit_rows, bits, np.append(matches.counts(), other.counts), matches.rows)


def _predicates(message_filter: MessageFilter) -> tuple[Predicate, Predicate, Predicate, Predicate]:
    return message_filter.tags, message_filter.expression, message_filter.client_tags, message_filter.failure


def mask_key(window: PullWindow | UncertainRange) -> MaskKey:
    """The range of messages of a window: those of equal ranges share a mask."""
    offsets, physical_ranges = (tuple(sorted(ranges.items())) for ranges in (window.offsets, window.physical_ranges))
    return window.stored_from, window.stored_to, offsets, window.only_listed, physical_ranges


def _positions(bit_pos: Sequence[tuple[int, ...]]) -> Int64s:
    """One row of bit positions for each filter. A filter without positions has zeros, which are never used."""
    width = max(map(len, bit_pos), default=0)
    return np.array([positions or (0,) * width for positions in bit_pos], np.int64).reshape(len(bit_pos), width)
