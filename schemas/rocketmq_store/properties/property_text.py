"""Property texts, ``key 0x01 value 0x02 …``, cut into keys and values (MessageDecoder.string2messageProperties).

For maps; ``property_slots`` cuts them into columns. Most of the bytes that are read from a log are property texts, so
text is copied and searched eight bytes at a time.
"""

import numpy as np
from numpy.typing import NDArray

from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import compiled
from schemas.rocketmq_store.commitlog.segments import SLACK
from schemas.rocketmq_store.gather import Bytes, Offsets, Positions, lowest_byte, store

NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR = 1, 2
"""The bytes between a name and its value, and after a value (MessageDecoder)."""
MIX = np.uint64(0x9E3779B97F4A7C15)
THREES, HIGH_BITS = (np.uint64(byte * 0x0101010101010101) for byte in (0x03, 0x80))


@compiled
def split(log: Bytes, starts: Positions, lengths: Positions) -> tuple[Offsets, Offsets, Bytes, Offsets, Bytes]:
    """The pairs of the texts at ``starts``, whose ``lengths`` are in bytes; SLACK bytes after the last may be read.

    Returns pairs, the offsets and bytes of keys, and the offsets and bytes of values, as Arrow's buffers: row i has
    the pairs ``pairs[i]`` to ``pairs[i + 1]``. The first 0x01 after a pair's start separates, the last 0x02 may be
    absent, pairs without a key or a value are dropped, and the last of equal keys wins.
    """
    rows = len(starts)
    size = int(lengths.sum())
    most = (size + rows) // 4 + 1
    pairs = np.zeros(rows + 1, np.int32)
    key_ends, value_ends = np.zeros(most + 1, np.int32), np.zeros(most + 1, np.int32)
    keys, values = np.empty(size + SLACK, np.uint8), np.empty(size + SLACK, np.uint8)
    count = 0
    for row in range(rows):
        start = int(starts[row])
        limit = start + int(lengths[row])
        seen = np.uint64(0)  # a bit for each length, first and last byte of a key: most keys differ in these
        while start < limit:
            separator = _copy(log, start, limit, keys, int(key_ends[count]), NAME_VALUE_SEPARATOR)
            end = separator
            if separator < limit and log[separator] == NAME_VALUE_SEPARATOR:
                end = _copy(log, separator + 1, limit, values, int(value_ends[count]), PROPERTY_SEPARATOR)
                if start < separator < end - 1:
                    key_ends[count + 1] = key_ends[count] + separator - start
                    value_ends[count + 1] = value_ends[count] + end - separator - 1
                    shape = (separator - start) << 16 | log[start] << 8 | log[separator - 1]
                    count += 1
                    bit = np.uint64(1) << ((np.uint64(shape) * MIX) >> np.uint64(58))
                    if seen & bit:
                        earlier = _first_with_key_of(keys, key_ends, pairs[row], count - 1)
                        if earlier < count - 1:
                            _drop(keys, key_ends, earlier, count)
                            _drop(values, value_ends, earlier, count)
                            count -= 1
                    seen |= bit
            start = end + 1
        pairs[row + 1] = count
    return pairs, key_ends[: count + 1], keys[: key_ends[count]], value_ends[: count + 1], values[: value_ends[count]]


@compiled
def find(
    pairs: Offsets, key_ends: Offsets, keys: Bytes, value_ends: Offsets, name: Bytes
) -> tuple[Positions, Positions, NDArray[np.bool_]]:
    """The value of the key ``name`` in each row: where it begins, its length in bytes, and whether it is missing."""
    rows = len(pairs) - 1
    starts, lengths, missing = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    for row in range(rows):
        for pair in range(pairs[row], pairs[row + 1]):
            start = key_ends[pair]
            if key_ends[pair + 1] - start == len(name) and is_name(keys[start:], name):
                starts[row] = value_ends[pair]
                lengths[row] = value_ends[pair + 1] - value_ends[pair]
                missing[row] = False
                break
    return starts, lengths, missing


@compiled
def _copy(text: Bytes, start: int, limit: int, out: Bytes, at: int, separator: int) -> int:
    """Copies up to ``separator``, a property's end, or ``limit``, and up to 7 bytes more. Returns the end."""
    while True:
        word = load_word(text, start)
        store(out, at, word)
        below_three = (word - THREES) & ~word & HIGH_BITS  # the lowest bit set is right, those above may not be
        step = lowest_byte(below_three) if below_three else 8
        start += step
        if start >= limit:
            return limit
        at += step
        if step < 8:
            if text[start] == separator or text[start] == PROPERTY_SEPARATOR:
                return start
            start += 1
            at += 1


@compiled
def _first_with_key_of(keys: Bytes, key_ends: Offsets, first: int, last: int) -> int:
    name = keys[key_ends[last] : key_ends[last + 1]]
    for pair in range(first, last):
        start = key_ends[pair]
        if key_ends[pair + 1] - start == len(name) and is_name(keys[start:], name):
            return pair
    return last


@compiled
def is_name(longer: Bytes, name: Bytes) -> bool:
    """Whether the octets begin with a name."""
    for i in range(len(name)):  # noqa: SIM110  Numba is slow on all()
        if longer[i] != name[i]:
            return False
    return True


@compiled
def _drop(data: Bytes, ends: Offsets, pair: int, count: int) -> None:
    gap = ends[pair + 1] - ends[pair]
    for i in range(ends[pair + 1], ends[count]):
        data[i - gap] = data[i]
    for i in range(pair, count):
        ends[i] = ends[i + 1] - gap
