"""Bits in words of 64: message i has bit i % 64 of word i // 64, and bits after the last message are zero."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from filtering.kernels import registers, text_loops
from filtering.kernels.compile import allocate, read_only

Words = npt.NDArray[np.uint64]


def words(rows: int) -> int:
    """The number of words for ``rows`` bits."""
    return (rows + 63) // 64


def pack(flags: npt.NDArray[np.bool_]) -> Words:
    """Bits, shape (…, rows), to words, shape (…, words(rows))."""
    packed = np.packbits(flags, axis=-1, bitorder="little")
    octets = np.zeros((*packed.shape[:-1], words(flags.shape[-1]) * 8), np.uint8)
    octets[..., : packed.shape[-1]] = packed
    return octets.view(np.uint64)


def unpack(packed: Words, rows: int) -> npt.NDArray[np.bool_]:
    """Words, shape (…, words(rows)), to bits, shape (…, rows)."""
    return np.unpackbits(packed.view(np.uint8), axis=-1, count=rows, bitorder="little").view(bool)


def count(bits: Words) -> npt.NDArray[np.int64]:
    """The number of set bits of each row."""
    counts = np.empty(len(bits), np.int64)
    registers.count(bits, counts)
    return counts


def positions(bits: Words, bit_rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The positions of the set bits of ``bit_rows``, one row after the other.

    ``starts``: where the positions of each row begin, and the end of the last.
    """
    result = allocate(int(starts[-1]) + registers.STORED_AT_ONCE, np.int32)
    registers.expand(read_only(bits), read_only(bit_rows), read_only(starts), result)
    return result[: starts[-1]]


def spread(text_bits: Words, texts: int, text_of_row: npt.NDArray[np.int32]) -> Words:
    """The bits about some ``texts``, for each message: ``text_of_row`` is the number of its text, or -1: no bit."""
    bits = np.zeros((len(text_bits), words(len(text_of_row))), np.uint64)
    text_loops.spread(read_only(text_bits), texts, read_only(text_of_row), bits)
    return bits
