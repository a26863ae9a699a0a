"""Picks scattered bytes out of a buffer: numbers, strings, property pairs. Compiled once, then cached by Numba."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java.strings import string_array
from filtering.numba_compile import compiled
from schemas.rocketmq_store.commitlog.record_layout import int_at
from schemas.rocketmq_store.commitlog.segments import SLACK

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@compiled
def ints(log: Bytes, at: Positions) -> NDArray[np.int32]:
    """The big-endian i32 at each position."""
    out = np.empty(len(at), np.int32)
    for i in range(len(at)):
        out[i] = int_at(log, at[i])
    return out


@compiled
def longs(log: Bytes, at: Positions) -> NDArray[np.int64]:
    """The big-endian i64 at each position."""
    out = np.empty(len(at), np.int64)
    for i in range(len(at)):
        out[i] = int_at(log, at[i]) << 32 | (int_at(log, at[i] + 4) & 0xFFFFFFFF)
    return out


@compiled
def spans(log: Bytes, at: Positions, lengths: Positions) -> tuple[NDArray[np.int32], Bytes]:
    """The bytes of each span, one after another: Arrow's offsets (rows + 1) and data, under 2 GiB in all."""
    offsets = np.zeros(len(at) + 1, np.int32)
    for i in range(len(at)):
        offsets[i + 1] = offsets[i] + lengths[i]
    data = np.empty(offsets[-1], np.uint8)
    for i in range(len(at)):
        source = log[at[i] :]
        target = data[offsets[i] : offsets[i + 1]]
        for j in range(len(target)):
            target[j] = source[j]
    return offsets, data


def binary_array(offsets: NDArray[np.int32], data: Bytes, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Arrow binary over offsets and data, null where ``missing``."""
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def decoded_texts(log: Bytes, at: Positions, lengths: Positions) -> tuple[Bytes, Positions, Positions]:
    """Texts that are not UTF-8, decoded as a whole as in Java: the UTF-8 of all, with the start and length of each."""
    _, offsets, data = string_array(*spans(log, at, lengths)).buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(at) + 1].astype(np.int64)
    return np.frombuffer(bytes(data) + bytes(SLACK), np.uint8), bounds[:-1], np.diff(bounds)
