"""Bits in words of 64: message i has bit i % 64 of word i // 64, and bits after the last message are zero."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
