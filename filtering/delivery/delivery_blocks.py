"""Who got which of some messages, kept so that groups which got the same ones share their bytes.

A block is some messages of one topic: where each lies, and for each set of groups that got the same of them,
which. Of the messages that a set of groups got, whatever takes least room is kept: nothing for all of them,
positions for few, and for many a bit a message, in words of 64 bits.
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
"""A row with more bytes of matches is split: readers take a row as a whole."""
_ROOM_OF_A_POSITION = 5
"""Positions are kept where fewer than one message in so many was received: each then takes fewer bits than that."""


def recipients(groups: list[str], subscriptions_from: list[int], available_at: list[int | None]) -> pa.StructArray:
    """One RECIPIENT for each window: group, valid_from of its subscription, available_at (None: when stored)."""
    columns = [
        pa.array(groups, pa.string()),
        pa.array(subscriptions_from, pa.int64()),
        pa.array(available_at, pa.int64()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(RECIPIENT))


def block_matches(sets: MatchSets, outcome: str, of_windows: pa.StructArray) -> pa.StructArray:
    """A MATCH for each set of windows that got the same entries. ``of_windows``: a RECIPIENT for each window."""
    few = sets.counts * _ROOM_OF_A_POSITION < sets.rows
    many = ~few & (sets.counts < sets.rows)
    starts = np.append(0, np.cumsum(sets.counts[few]))
    positions = kernels.expand(sets.bits, sets.chosen[few], starts, np.int32)
    words = np.ascontiguousarray(sets.bits[sets.chosen[many]]).view(np.int64)
    columns = [
        pa.repeat(pa.scalar(outcome, pa.string()), len(sets)),
        pa.array(sets.counts, pa.int32()),
        pa.ListArray.from_arrays(pa.array(sets.starts, pa.int32()), of_windows.take(pa.array(sets.windows))),
        _lists(few, sets.counts[few], pa.array(positions)),
        _lists(many, np.full(int(many.sum()), words.shape[1]), pa.array(words.reshape(-1))),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(MATCH))


def block_rows(entries: Entries, matches: pa.StructArray) -> Iterator[dict[str, pa.Array]]:
    """A block as rows of the table, by column: all its messages, and as many matches as a row may have."""
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
        } | {name: pa.ListArray.from_arrays(pa.array([0, len(each)], pa.int32()), each) for name, each in lists.items()}


def _parts(matches: pa.StructArray) -> Iterator[pa.StructArray]:
    """Slices of at most BYTES_IN_A_ROW, or one match."""
    received, in_words, groups = (
        np.diff(matches.field(name).offsets.to_numpy()) for name in ("positions", "bits", "recipients")
    )
    ends = np.cumsum(4 * received + 8 * in_words + 24 * groups)
    start = 0
    while start < len(matches):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BYTES_IN_A_ROW, "right")))
        yield matches.slice(start, end - start)
        start = end


def _lists(valid: npt.NDArray[np.bool_], lengths: npt.ArrayLike, values: pa.Array) -> pa.ListArray:
    """A list of so many values for each that is valid."""
    all_lengths = np.zeros(len(valid), np.int64)
    all_lengths[valid] = lengths
    offsets = pa.array(np.append(0, np.cumsum(all_lengths)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(~valid))
