"""Cuts property texts into columns, for ``property_columns``: a slot for each name.

A property text is ``name 0x01 value 0x02 …`` (MessageDecoder.string2messageProperties): the first 0x01 after a
pair's start separates, the last 0x02 may be absent, pairs without a name or a value are dropped, and the last
of equal names wins. Messages of one topic have mostly the same names in the same order, so a name is first
searched in the slot that followed the previous name the last time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import compiled
from schemas.rocketmq_store.gather import Bytes, Positions, find_two, store
from schemas.rocketmq_store.properties.property_text import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

Cells = NDArray[np.int32]

NAME_BYTES = 256
"""A longer name gets no slot."""
_KEPT = np.array([2 ** (8 * length) - 1 for length in range(9)], np.uint64)


@compiled
def find_pairs(
    log: Bytes,
    starts: Positions,
    lengths: Positions,
    topics: NDArray[np.int32],
    names: Bytes,
    name_lengths: Cells,
    used: Cells,
    follower: Cells,
    value_starts: Cells,
    value_lengths: Cells,
    overflow: NDArray[np.bool_],
) -> None:
    """Finds the pairs of the texts at ``starts``; SLACK bytes after the last can be read.

    ``names`` (topics x slots x NAME_BYTES), ``name_lengths`` (topics x slots) and ``used`` (topics) are the slots
    so far, and grow; ``follower`` (topics x slots + 1) is the slot that followed each, the last one the first of a
    message. Slot s of row i gets its value's position and length in ``value_starts[s, i]`` and
    ``value_lengths[s, i]``, which must be zero before. ``overflow[i]``: some pair of the row has no slot.
    """
    slots = name_lengths.shape[1]
    for row in range(len(starts)):
        topic = topics[row]
        count = int(used[topic])
        start = int(starts[row])
        limit = start + int(lengths[row])
        before = slots
        while start < limit:
            first = load_word(log, start)
            slot = -1
            separator = -1
            candidate = int(follower[topic, before])
            for _ in range(count):
                candidate = candidate if candidate < count else 0
                length = int(name_lengths[topic, candidate])
                if (
                    start + length < limit
                    and log[start + length] == NAME_VALUE_SEPARATOR
                    and (first ^ load_word(names[topic, candidate], 0)) & _KEPT[min(length, 8)] == 0
                    and (length <= 8 or _same(log, start, names[topic, candidate], length))
                ):
                    slot = candidate
                    separator = start + length
                    break
                candidate += 1
            if slot < 0:
                separator = _separator(log, start, limit)
                if separator == limit or log[separator] == PROPERTY_SEPARATOR:
                    start = separator + 1
                    continue
            end = find_two(log, separator + 1, limit)
            if start < separator < end - 1:
                length = separator - start
                if slot < 0 and count < slots and length <= NAME_BYTES - 8:
                    slot = count
                    for i in range(length):
                        names[topic, slot, i] = log[start + i]
                    name_lengths[topic, slot] = length
                    count += 1
                    used[topic] = count
                if slot < 0:
                    overflow[row] = True
                else:
                    value_starts[slot, row] = separator + 1
                    value_lengths[slot, row] = end - separator - 1
            if slot >= 0:
                follower[topic, before] = slot
                before = slot
            start = end + 1


@compiled
def _separator(log: Bytes, start: int, limit: int) -> int:
    """The first 0x01 or 0x02 from ``start`` on, or ``limit``."""
    at = start
    while at < limit and log[at] != NAME_VALUE_SEPARATOR and log[at] != PROPERTY_SEPARATOR:
        at += 1
    return at


@compiled
def _same(log: Bytes, start: int, name: Bytes, length: int) -> bool:
    for i in range(8, length):  # noqa: SIM110  Numba is slow on all()
        if log[start + i] != name[i]:
            return False
    return True


@compiled
def copy_values(log: Bytes, starts: Cells, lengths: Cells, offsets: Cells, data: Bytes) -> None:
    """The values of one slot, one after another, as Arrow's offsets (rows + 1) and data (SLACK bytes longer)."""
    at = 0
    for row in range(len(starts)):
        length = int(lengths[row])
        source = int(starts[row])
        for i in range(0, length, 8):
            store(data, at + i, load_word(log, source + i))
        at += length
        offsets[row + 1] = at
