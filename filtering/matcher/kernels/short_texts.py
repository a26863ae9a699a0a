"""Loads the first octets of texts as words, a block at a time.

Loops over a block of words have no branches, so that LLVM turns them into vector instructions.
"""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.numba_compile import Array, Int, compiled
from filtering.matcher.kernels.words import load_word

BLOCK = 256
MISSING = -1


@compiled
def load_texts(
    octets: Array,
    offsets: Array,
    validity: Array,
    first_bit: Int,
    positions: Array,
    first: Int,
    lengths: Array,
    words: Array,
) -> None:
    """The lengths of the texts of rows ``first`` and following, and their first 8 octets.

    The length of a missing text is MISSING. What follows a shorter text in its word is undefined.
    """
    has_positions, has_nulls = len(positions) > 0, len(validity) > 0
    for i in range(len(words)):
        at = np.int64(positions[first + i]) if has_positions else first + i
        if at < 0 or (has_nulls and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            lengths[i], words[i] = MISSING, 0
            continue
        start = np.int64(offsets[at])
        lengths[i] = np.int64(offsets[at + 1]) - start
        words[i] = load_word(octets, start) if start + 8 <= len(octets) else _last_octets(octets, start)


@compiled
def _last_octets(octets: Array, start: Int) -> Int:
    word = np.uint64(0)
    for i in range(len(octets) - start):
        word |= np.uint64(octets[start + i]) << np.uint64(8 * i)
    return word
