"""Loads the first octets of texts as words, a block at a time.

Loops over a block of words have no branches, so that LLVM turns them into vector instructions.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import Array, Int, compiled

Texts: TypeAlias = tuple[Array, Array, Array, Int, Array]
"""A column of texts: octets, offsets, validity bits, the position of the first text's validity bit, and positions.

Row i is text ``positions[i]``, or missing if that is negative. Without positions, row i is text i. Without validity
bits, no text is missing.
"""
BLOCK = 256
"""Rows in a block."""
MISSING = -1
"""The length of a missing text."""


@compiled
def load_texts(texts: Texts, first: Int, lengths: Array, words: Array) -> None:
    """The lengths of the texts of rows ``first`` and following, and their first 8 octets.

    The length of a missing text is MISSING. What follows a shorter text in its word is undefined.
    """
    octets, offsets, validity, first_bit, positions = texts
    has_positions, has_nulls = len(positions) > 0, len(validity) > 0
    for i in range(len(words)):
        at = np.int64(positions[first + i]) if has_positions else first + i
        if at < 0 or (has_nulls and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            lengths[i], words[i] = MISSING, 0
            continue
        start = np.int64(offsets[at])
        lengths[i] = np.int64(offsets[at + 1]) - start
        words[i] = first_octets(octets, start)


@compiled
def first_octets(octets: Array, start: Int) -> Int:
    """The next 8 octets as a word; zeros follow the last octet."""
    if start + 8 <= len(octets):
        return load_word(octets, start)
    word = np.uint64(0)
    for i in range(len(octets) - start):
        word |= np.uint64(octets[start + i]) << np.uint64(8 * i)
    return word
