"""Which groups got which messages of a run, as a block of deliveries keeps it.

Of the messages that a set of groups got, whatever takes least room is kept: nothing for all of them,
positions for few, and for many a bit a message. Both are kept in words of 64 bits, which any SQL can
take apart.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher import kernels
from filtering.replay.delivered_sets import DeliveredSets
from filtering.replay.delivery import Outcome

DELIVERED = "DELIVERED"
DROPPED_BY_CLIENT = "DROPPED_BY_CLIENT"
DROPPED_BY_HOOK = "DROPPED_BY_HOOK"
POSITIONS_IN_A_WORD = 4

MATCH = pa.struct(
    [
        ("consumer_group", pa.list_(pa.string())),
        ("outcome", pa.string()),
        ("messages", pa.int32()),
        ("positions", pa.list_(pa.int64())),
        ("bits", pa.list_(pa.int64())),
    ]
)


def block_matches(outcome: Outcome, groups: pa.StringArray) -> pa.StructArray:
    """MATCHes of a run: one for each set of groups that got the same messages. ``groups``: the filters' groups."""
    return pa.concat_arrays(
        [
            _of_outcome(outcome.delivered, DELIVERED, groups),
            _of_outcome(outcome.dropped_by_client, DROPPED_BY_CLIENT, groups),
            _of_outcome(outcome.dropped_by_hook, DROPPED_BY_HOOK, groups),
        ]
    )


def _of_outcome(sets: DeliveredSets, name: str, groups: pa.StringArray) -> pa.StructArray:
    columns = [
        pa.ListArray.from_arrays(pa.array(sets.starts, pa.int32()), groups.take(pa.array(sets.filters))),
        pa.repeat(name, len(sets)),
        pa.array(sets.counts, pa.int32()),
        *_kept(sets),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(MATCH))


def _kept(sets: DeliveredSets) -> tuple[pa.ListArray, pa.ListArray]:
    """(positions, bits): positions of few messages, four a word, the lowest first; bits of many, not all."""
    few = sets.counts * (64 // POSITIONS_IN_A_WORD) < sets.rows
    many = ~few & (sets.counts < sets.rows)
    words = -(-sets.counts[few] // POSITIONS_IN_A_WORD)
    starts = np.append(0, np.cumsum(words * POSITIONS_IN_A_WORD))
    positions = kernels.backend.expand(sets.bits, sets.chosen[few], starts, np.uint16)
    bits = sets.bits[sets.chosen[many]]
    return (
        _lists_of_words(few, words, positions.view(np.int64)),
        _lists_of_words(many, bits.shape[1], bits.view(np.int64).reshape(-1)),
    )


def _lists_of_words(valid: npt.NDArray[np.bool_], lengths: npt.ArrayLike, words: npt.NDArray[np.int64]) -> pa.ListArray:
    """A list of so many words for each that is valid."""
    all_lengths = np.zeros(len(valid), np.int64)
    all_lengths[valid] = lengths
    offsets = pa.array(np.append(0, np.cumsum(all_lengths)), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(words), mask=pa.array(~valid))
