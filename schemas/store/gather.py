"""Pick scattered bytes out of a buffer: numbers, strings, property pairs. Compiled once, then cached by Numba."""

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from schemas.store.record_layout import int_at

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@njit(cache=True)
def ints(log: Bytes, at: Positions) -> NDArray[np.int32]:
    """The big-endian i32 at each position."""
    out = np.empty(len(at), np.int32)
    for i in range(len(at)):
        out[i] = int_at(log, at[i])
    return out


@njit(cache=True)
def longs(log: Bytes, at: Positions) -> NDArray[np.int64]:
    """The big-endian i64 at each position."""
    out = np.empty(len(at), np.int64)
    for i in range(len(at)):
        out[i] = int_at(log, at[i]) << 32 | (int_at(log, at[i] + 4) & 0xFFFFFFFF)
    return out


@njit(cache=True)
def _copy(log: Bytes, at: Positions, offsets: NDArray[np.int32], out: Bytes) -> None:
    for i in range(len(at)):
        source = at[i]
        target = offsets[i]
        for j in range(offsets[i + 1] - target):
            out[target + j] = log[source + j]


def spans(log: Bytes, at: Positions, lengths: Positions) -> tuple[NDArray[np.int32], Bytes]:
    """The bytes of each span, one after another: Arrow's offsets (rows + 1) and data, under 2 GiB in all."""
    offsets = np.zeros(len(at) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    _copy(log, at, offsets, data)
    return offsets, data


def binary_array(offsets: NDArray[np.int32], data: Bytes, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Arrow binary over offsets and data, null where ``missing``."""
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


@njit(cache=True)
def split_properties(
    text: Bytes,
    offsets: NDArray[np.int32],
    pairs: NDArray[np.int32],
    keys: Positions,
    separators: Positions,
    ends: Positions,
) -> int:
    """Find the pairs of every property text: ``key 0x01 value 0x02``, the last 0x02 may be absent.

    The first 0x01 after a pair's start separates; pairs without a key or a value are dropped; the last of
    equal keys wins (MessageDecoder.string2messageProperties). Row i has the pairs ``pairs[i]`` to
    ``pairs[i + 1]``, whose key begins at ``keys``, is ended by ``separators``, and whose value ends at ``ends``.
    """
    count = 0
    for row in range(len(offsets) - 1):
        first = count
        position = offsets[row]
        limit = offsets[row + 1]
        while position < limit:
            separator = -1
            end = position
            while end < limit and text[end] != 2:
                if text[end] == 1 and separator < 0:
                    separator = end
                end += 1
            if position < separator < end - 1:
                same = count
                for other in range(first, count):
                    if separators[other] - keys[other] == separator - position:
                        equal = True
                        for i in range(separator - position):
                            if text[keys[other] + i] != text[position + i]:
                                equal = False
                                break
                        if equal:
                            same = other
                            break
                keys[same] = position
                separators[same] = separator
                ends[same] = end
                if same == count:
                    count += 1
            position = end + 1
        pairs[row + 1] = count
    return count


@njit(cache=True)
def find_key(text: Bytes, pairs: NDArray[np.int32], keys: Positions, separators: Positions, name: Bytes) -> Positions:
    """Of each row, the pair whose key is ``name``, or -1."""
    out = np.full(len(pairs) - 1, -1, np.int64)
    for row in range(len(pairs) - 1):
        for pair in range(pairs[row], pairs[row + 1]):
            if separators[pair] - keys[pair] == len(name):
                equal = True
                for i in range(len(name)):
                    if text[keys[pair] + i] != name[i]:
                        equal = False
                        break
                if equal:
                    out[row] = pair
                    break
    return out
