"""Loops that find many search texts at once: in texts, and from these for messages."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.short_texts import Texts
from filtering.matcher.kernels.words import lowest_one
from filtering.numba_compile import Array, Int, compiled


@compiled
def search(
    texts: Texts,
    rows: Int,
    is_backwards: bool,
    classes: Array,
    steps: Array,
    width: Int,
    root: Int,
    dead: Int,
    first_end: Int,
    next_end: Array,
    bounds: Array,
    found: Array,
    rests: Array,
    rest_offsets: Array,
    bits: Array,
) -> None:
    """Sets bit i of row s of ``bits`` if the leaf of search text s is true for row i of ``texts``: see TextSearch.

    ``rows``: the number of rows of ``texts``. ``bits`` must be all zeros.
    """
    octets, offsets, validity, first_bit, positions = texts
    direction = -1 if is_backwards else 1
    for row in range(rows):
        at = np.int64(positions[row]) if len(positions) > 0 else row
        if at < 0 or (len(validity) > 0 and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            continue
        left = np.int64(offsets[at + 1]) - np.int64(offsets[at])
        octet = np.int64(offsets[at + 1]) - 1 if is_backwards else np.int64(offsets[at])
        state = np.int64(root)
        while state != dead:
            end = (state - first_end) // width if state >= first_end else -1
            while end >= 0:
                for i in range(bounds[end], bounds[end + 1]):
                    text = np.int64(found[i])
                    rest = rests[rest_offsets[text] : rest_offsets[text + 1]]
                    if len(rest) <= left and follows(octets, octet, direction, rest):
                        bits[text, row >> 6] |= np.uint64(1) << np.uint64(row & 63)
                end = np.int64(next_end[end])
            if left == 0:
                break
            state = np.int64(steps[state + classes[octets[octet]]])
            octet += direction
            left -= 1


@compiled
def follows(octets: Array, at: Int, direction: Int, rest: Array) -> bool:
    """Whether ``rest`` is in ``octets`` from ``at`` on, in this direction."""
    for i in range(len(rest)):  # noqa: SIM110  Numba is slow on all()
        if octets[at + direction * i] != rest[i]:
            return False
    return True


@compiled
def spread(of_texts: Array, texts: Int, positions: Array, bits: Array) -> None:
    """Sets bit i of row s of ``bits`` if bit positions[i] of row s of ``of_texts`` is set: 64 rows at a time.

    ``texts``: the number of texts. A negative position has no bit. ``bits`` must be all zeros.
    """
    rows_of_text = np.zeros(texts, np.uint64)
    for first in range(0, len(of_texts), 64):
        rows_of_text[:] = 0
        for row in range(first, min(first + 64, len(of_texts))):
            for word in range(of_texts.shape[1]):
                left = of_texts[row, word]
                while left:
                    rows_of_text[(word << 6) + lowest_one(left)] |= np.uint64(1) << np.uint64(row - first)
                    left &= left - np.uint64(1)
        for i in range(len(positions)):
            left = rows_of_text[positions[i]] if positions[i] >= 0 else np.uint64(0)
            while left:
                bits[first + lowest_one(left), i >> 6] |= np.uint64(1) << np.uint64(i & 63)
                left &= left - np.uint64(1)
