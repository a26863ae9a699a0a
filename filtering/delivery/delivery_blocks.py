"""Delivery blocks: which groups received which messages, stored once for groups that received the same messages.

A block is a run of messages of one topic with their offsets, and *matches*: sets of groups with the messages that all
of them received, or that all of their clients dropped (the outcome of the match says which). A match is stored in the
smallest form: nothing for all messages of the block, the positions of few messages, or for many messages one bit for
each message of the block, in words of 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery import MATCH, RECIPIENT
from filtering.delivery.entries import Entries, Int32s, Int64s
from filtering.frozen import frozen
from filtering.matcher import packed_bits
from filtering.matcher.packed_bits import Words

# Sets of pull windows that received the same entries of a block.


@frozen(eq=False)
class MatchSet:
    """Windows (by number) that received the same ``count`` entries of a block of ``rows``, as packed bits."""

    windows: tuple[int, ...]
    bits: Words
    count: int
    rows: int

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        """The positions of the entries in the block, ascending."""
        return np.flatnonzero(packed_bits.unpack(self.bits, self.rows)).astype(np.int32)


@frozen(eq=False)
class MatchSets:
    """Many MatchSets of one block of ``rows`` entries, in columns.

    Set s has the windows ``windows[starts[s]:starts[s + 1]]``, at least one, and those ``counts[s]`` entries whose
    bits are set in ``bits[bit_rows[s]]``.
    """

    windows: Int64s
    starts: Int64s
    bits: Words
    bit_rows: Int64s
    counts: Int64s
    rows: int

    @classmethod
    def of(cls, sets: Sequence[MatchSet], rows: int) -> MatchSets:
        """The columns of some sets of a block of ``rows`` entries."""
        return cls(
            np.array([window for match_set in sets for window in match_set.windows], np.int64),
            np.cumsum([0, *(len(match_set.windows) for match_set in sets)]),
            np.array([match_set.bits for match_set in sets], np.uint64).reshape(len(sets), packed_bits.words(rows)),
            np.arange(len(sets)),
            np.array([match_set.count for match_set in sets], np.int64),
            rows,
        )

    @classmethod
    def shared(cls, windows: Int64s, bit_rows: Int64s, bits: Words, counts: Int64s, rows: int) -> MatchSets:
        """Window windows[i] received the entries of ``bits[bit_rows[i]]``. Row j has counts[j] bits set."""
        order = np.argsort(bit_rows, kind="stable")
        distinct, starts = np.unique(bit_rows[order], return_index=True)
        return cls(windows[order], np.append(starts, len(windows)), bits, distinct, counts[distinct], rows)

    def flags(self, window_count: int) -> npt.NDArray[np.bool_]:
        """The entries that each window received, shape (window_count, rows)."""
        flags = np.zeros((window_count, self.rows), bool)
        for match_set in self:
            flags[list(match_set.windows)] |= packed_bits.unpack(match_set.bits, self.rows)
        return flags

    def __len__(self) -> int:
        return len(self.bit_rows)

    def __iter__(self) -> Iterator[MatchSet]:
        window_sets = np.split(self.windows, self.starts[1:-1]) if len(self) else []
        for windows, bit_row, count in zip(window_sets, self.bit_rows, self.counts.tolist(), strict=True):
            yield MatchSet(tuple(windows.tolist()), self.bits[bit_row], count, self.rows)


@frozen(eq=False)
class DistinctRows:
    """Distinct rows of bits: ``windows[i]`` has row ``bits[bit_rows[i]]``, with ``counts[bit_rows[i]]`` set bits."""

    windows: Int64s
    bit_rows: Int64s
    bits: Words
    counts: Int64s


def distinct_rows(parts: list[tuple[Int32s, Words]]) -> DistinctRows:
    """The distinct rows of some ``parts``: each has the numbers of windows, and a row of bits for each of them."""
    windows = np.concatenate([np.empty(0, np.int64), *(numbers for numbers, _ in parts)])
    number_of: dict[bytes, int] = {}
    bit_rows, kept = [], []
    for _, rows in parts:
        for row in rows:
            known = len(number_of)
            number = number_of.setdefault(row.tobytes(), known)
            if number == known:
                kept.append(row)
            bit_rows.append(number)
    width = parts[0][1].shape[1] if parts else 0
    bits = np.array(kept, np.uint64).reshape(len(kept), width)
    return DistinctRows(windows, np.array(bit_rows, np.int64), bits, np.bitwise_count(bits).sum(axis=1, dtype=np.int64))


def distinct_match_sets(parts: list[tuple[Int32s, Words]], rows: int) -> MatchSets:
    """The windows of :func:`distinct_rows` as sets. ``rows``: the number of entries of the block."""
    distinct = distinct_rows(parts)
    return MatchSets.shared(distinct.windows, distinct.bit_rows, distinct.bits, distinct.counts, rows)


BYTES_IN_A_ROW = 1 << 20
"""A row with more bytes of matches is split, because readers load whole rows."""
_ROOM_OF_A_POSITION = 5
"""Positions are stored if fewer than one in this many messages was received.

In the file, the packed differences between positions (DELTA_BINARY_PACKED) then take about as much room as bits.
"""


def recipients(groups: list[str], subscriptions_from: list[int], available_at: list[int | None]) -> pa.StructArray:
    """A RECIPIENT for each pull window. ``subscriptions_from`` and ``available_at`` (None: when stored) are in ms."""
    columns = [
        pa.array(groups, pa.string()),
        pa.array(subscriptions_from, pa.int64()),
        pa.array(available_at, pa.int64()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(RECIPIENT))


def block_matches(sets: MatchSets, outcome: str, recipients_of_windows: pa.StructArray) -> pa.StructArray:
    """A MATCH for each set of windows that received the same entries. ``recipients_of_windows``: one each."""
    few = sets.counts * _ROOM_OF_A_POSITION < sets.rows
    many = ~few & (sets.counts < sets.rows)
    starts = np.append(0, np.cumsum(sets.counts[few]))
    positions = packed_bits.positions(sets.bits, sets.bit_rows[few], starts)
    words = np.ascontiguousarray(sets.bits[sets.bit_rows[many]]).view(np.int64)
    columns = [
        pa.repeat(pa.scalar(outcome, pa.string()), len(sets)),
        pa.array(sets.counts, pa.int32()),
        pa.ListArray.from_arrays(pa.array(sets.starts, pa.int32()), recipients_of_windows.take(pa.array(sets.windows))),
        _lists(few, sets.counts[few], pa.array(positions)),
        _lists(many, np.full(int(many.sum()), words.shape[1]), pa.array(words.reshape(-1))),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(MATCH))


def block_rows(entries: Entries, matches: pa.StructArray) -> Iterator[dict[str, pa.Array]]:
    """The rows of the table for a block, by column. Each row has all messages, and as many matches as fit."""
    messages = {
        "queue_id": pa.array(entries.queue_id),
        "queue_offset": pa.array(entries.queue_offset),
        "commitlog_offset": pa.array(entries.commitlog_offset),
        "store_timestamp": pa.array(entries.store_timestamp),
    }
    times = entries.store_timestamp
    for part in _parts(matches):
        lists = messages | {"matches": part}
        yield {
            "topic": pa.array([entries.topic]),
            "first_store_timestamp": pa.array([times.min()], pa.int64()),
            "last_store_timestamp": pa.array([times.max()], pa.int64()),
            "messages": pa.array([len(entries)], pa.int32()),
        } | {
            name: pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
            for name, values in lists.items()
        }


def _parts(matches: pa.StructArray) -> Iterator[pa.StructArray]:
    """Slices of at most BYTES_IN_A_ROW bytes, or of one match if it is larger."""
    positions, words, groups = (
        np.diff(matches.field(name).offsets.to_numpy()) for name in ("positions", "bits", "recipients")
    )
    ends = np.cumsum(4 * positions + 8 * words + 24 * groups)
    start = 0
    while start < len(matches):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BYTES_IN_A_ROW, "right")))
        yield matches.slice(start, end - start)
        start = end


def _lists(valid: npt.NDArray[np.bool_], lengths: npt.ArrayLike, values: pa.Array) -> pa.ListArray:
    """One list for each element of ``valid``: null if it is false, else as long as the next of ``lengths``."""
    all_lengths = np.zeros(len(valid), np.int64)
    all_lengths[valid] = lengths
    offsets = pa.array(np.append(0, np.cumsum(all_lengths)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(~valid))


# Blocks of deliveries that are known one by one, such as those that the broker wrote down.


MESSAGES_OF_A_BLOCK = 1 << 16
Columns = Mapping[str, Int64s]
_PLACE = ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")


def rows_of_deliveries(
    topic: str, deliveries: Columns, groups: Sequence[str], outcomes: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """The rows of delivery_blocks, by column, with one match for each pop, group and outcome.

    ``deliveries`` are of messages of one topic; a message is in it as often as it was delivered. Its columns: queue_id,
    queue_offset, commitlog_offset, store_timestamp, group and outcome (numbers of ``groups`` and ``outcomes``),
    available_at, subscription_from. Times are in ms.
    """
    order = np.lexsort([deliveries[name] for name in ("commitlog_offset", "queue_offset", "queue_id")])
    is_new = np.append(True, np.diff(deliveries["commitlog_offset"][order]) != 0)[: len(order)]
    number = np.cumsum(is_new) - 1
    messages = order[is_new]
    for first in range(0, len(messages), MESSAGES_OF_A_BLOCK):
        at = messages[first : first + MESSAGES_OF_A_BLOCK]
        queue_id, queue_offset, commitlog_offset, store_timestamp = (deliveries[name][at] for name in _PLACE)
        nothing = np.zeros(len(at), np.int64)
        sizes = nothing.astype(np.int32)
        entries = Entries(topic, queue_id, queue_offset, commitlog_offset, sizes, nothing, store_timestamp, {})
        bounds = np.searchsorted(number, [first, first + len(at)])
        here = slice(bounds[0], bounds[1])
        yield from block_rows(entries, _matches(deliveries, order[here], number[here] - first, groups, outcomes))


def _matches(
    deliveries: Columns, at: Int64s, position: Int64s, groups: Sequence[str], outcomes: Sequence[str]
) -> pa.StructArray:
    """A MATCH for each pop. ``position``: of the message of each delivery ``at`` some places, in the block."""
    columns = [deliveries[name][at] for name in ("outcome", "group", "available_at", "subscription_from")]
    order = np.lexsort((position, *reversed(columns)))
    differs = np.append(True, np.zeros(len(order) - 1, bool))
    for column in columns:
        differs[1:] |= np.diff(column[order]) != 0
    starts = np.flatnonzero(differs)
    bounds = np.append(starts, len(order))
    outcome, group, available_at, subscription_from = (pa.array(column[order[starts]]) for column in columns)
    every = np.arange(len(starts) + 1, dtype=np.int32)
    recipient = [pa.array(groups, pa.string()).take(group), subscription_from, available_at]
    popped_recipients = pa.StructArray.from_arrays(recipient, fields=list(RECIPIENT))
    values = [
        pa.array(outcomes, pa.string()).take(outcome),
        pa.array(np.diff(bounds), pa.int32()),
        pa.ListArray.from_arrays(pa.array(every), popped_recipients),
        pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pa.array(position[order], pa.int32())),
        pa.nulls(len(starts), pa.list_(pa.int64())),
    ]
    return pa.StructArray.from_arrays(values, fields=list(MATCH))
