"""Delivery blocks: which groups received which messages, stored once for groups that received the same messages.

A block is a run of messages of one topic with their offsets, and *matches*: sets of groups with the messages that all
of them received, or that all of their clients dropped (the outcome of the match says which). A match is stored in the
smallest form: nothing for all messages of the block, the positions of few messages, or for many messages one bit for
each message of the block, in words of 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery.block_schema import MATCH, RECIPIENT
from filtering.delivery.entries import Entries
from filtering.delivery.match_sets import MatchSets
from filtering.matcher.kernels import kernels

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
    positions = kernels.expand(sets.bits, sets.chosen[few], starts)
    words = np.ascontiguousarray(sets.bits[sets.chosen[many]]).view(np.int64)
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
