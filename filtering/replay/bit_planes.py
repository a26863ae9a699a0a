"""Packed bits, 64 messages a word, and filter bit maps turned on their side.

A *plane* holds one bit position of the bit maps of many messages: bit i of word i // 64 is
message i's. Bits past the last message are zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]


def words(rows: int) -> int:
    """Words for ``rows`` bits."""
    return (rows + 63) // 64


def pack(flags: npt.NDArray[np.bool_]) -> Words:
    """Bits, shape (…, rows), to words, shape (…, words(rows))."""
    octets = np.packbits(flags, axis=-1, bitorder="little")
    padding = words(flags.shape[-1]) * 8 - octets.shape[-1]
    widths = [(0, 0)] * (octets.ndim - 1) + [(0, padding)]
    return np.ascontiguousarray(np.pad(octets, widths)).view(np.uint64)


def unpack(packed: Words, rows: int) -> npt.NDArray[np.bool_]:
    """Words, shape (…, words(rows)), to bits, shape (…, rows)."""
    return np.unpackbits(packed.view(np.uint8), axis=-1, count=rows, bitorder="little").view(bool)


def count(packed: Words) -> npt.NDArray[np.int64]:
    """Bits set, summed over the last axis."""
    counts: npt.NDArray[np.int64] = np.bitwise_count(packed).sum(axis=-1, dtype=np.int64)
    return counts


def to_bit_maps(planes: Words, present: npt.NDArray[np.bool_]) -> pa.Array:
    """Planes, shape (bit_num, words), to one binary of bit_num / 8 bytes a message; null where not present."""
    rows = len(present)
    octets = np.packbits(unpack(planes, rows).T, axis=1, bitorder="little")
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    width = planes.shape[0] // 8
    fixed = pa.Array.from_buffers(pa.binary(width), rows, [validity, pa.py_buffer(np.ascontiguousarray(octets))])
    return fixed.cast(pa.binary())


def from_bit_maps(bit_maps: pa.Array, bit_num: int) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Bit maps (binary, nulls and other lengths allowed) to planes of shape (bit_num, words), and which were read.

    A null bit map or one of another length leaves zeros and is not read.
    """
    rows, width = len(bit_maps), bit_num // 8
    offsets = np.frombuffer(bit_maps.buffers()[1], np.int32, rows + 1, bit_maps.offset * 4)
    readable = np.asarray(bit_maps.is_valid()) & (np.diff(offsets) == width)
    octets = np.zeros((rows, width), np.uint8)
    if readable.any():
        stored = np.frombuffer(bit_maps.buffers()[2], np.uint8)
        octets[readable] = stored[offsets[:-1][readable][:, None] + np.arange(width)]
    bits = np.unpackbits(octets, axis=1, bitorder="little").view(bool)
    return pack(np.ascontiguousarray(bits.T)), readable
