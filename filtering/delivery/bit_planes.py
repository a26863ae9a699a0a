"""Filter bit maps transposed into planes. A *plane* has one bit position of the bit maps of many messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher.packed_bits import Words, words
from filtering.numba_compile import compiled

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
