"""Picks scattered bytes out of a buffer: numbers, texts, eight bytes at once. Compiled once, then cached by Numba."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java.strings import string_array
from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import compiled
from schemas.rocketmq_store.commitlog.record_layout import int_at
from schemas.rocketmq_store.commitlog.segments import SLACK

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Offsets = NDArray[np.int32]
"""Arrow's offsets: where each text begins in the data, and where the last one ends."""
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_TWOS = np.uint64(0x0202020202020202)


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
def spans(log: Bytes, at: Positions, lengths: Positions) -> tuple[Offsets, Bytes]:
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


def binary_array(offsets: Offsets, data: Bytes, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Arrow binary over offsets and data, null where ``missing``."""
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def decoded_texts(log: Bytes, at: Positions, lengths: Positions) -> tuple[Bytes, Positions, Positions]:
    """Texts that are not UTF-8, decoded as a whole as in Java: the UTF-8 of all, with the start and length of each."""
    _, offsets, data = string_array(*spans(log, at, lengths)).buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(at) + 1].astype(np.int64)
    return np.frombuffer(bytes(data) + bytes(SLACK), np.uint8), bounds[:-1], np.diff(bounds)


@compiled
def store(data: Bytes, at: int, word: np.uint64) -> None:
    """Writes a word as eight bytes from ``at`` on: the reverse of load_word."""
    i = np.uint64(at)
    for j in range(8):
        data[i + np.uint64(j)] = np.uint8(word >> np.uint64(8 * j))


@compiled
def find_two(data: Bytes, start: int, end: int) -> int:
    """The first byte 0x02 from ``start`` on, or ``end``; up to seven bytes after ``end`` are read."""
    at = start
    while at < end:
        different = load_word(data, at) ^ _TWOS
        zeros = (different - _ONES) & ~different & _HIGH_BITS  # the lowest bit set is right, those above may not be
        if zeros:
            return min(end, at + lowest_byte(zeros))
        at += 8
    return end


@compiled
def lowest_byte(word: np.uint64) -> int:
    """The index of the lowest byte of ``word`` whose high bit is set."""
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    return int(np.int64(((below & _ONES) * _ONES) >> np.uint64(56))) - 1
