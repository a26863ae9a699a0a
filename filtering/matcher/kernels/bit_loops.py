"""Packed bits combined, and read off."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filtering.matcher.kernels.numba_compile import compiled

Array = npt.NDArray[Any]

_OCTET = np.arange(256, dtype=np.uint8)
_BITS = np.unpackbits(_OCTET[:, None], axis=1, bitorder="little")
COUNT_OF_OCTET = _BITS.sum(axis=1, dtype=np.uint8)
POSITIONS_IN_OCTET = np.argsort(1 - _BITS, axis=1, kind="stable").astype(np.uint8)


@compiled
def evaluate(
    classes: Array,
    starts: Array,
    counts: Array,
    is_cumulative: Array,
    singles: Array,
    first_single: int,
    instructions: Array,
    registers: Array,
    bits: Array,
) -> None:
    """A block of words at a time, as many as a register has."""
    axes, rows = classes.shape
    width = registers.shape[1]
    words = bits.shape[1]
    for first in range(0, words, width):
        used = min(width, words - first)
        for axis in range(axes):
            start, count = starts[axis], counts[axis]
            registers[start : start + count] = 0
            for row in range(first * 64, min(rows, (first + used) * 64)):
                which = classes[axis, row]
                if which < count:
                    registers[start + which, (row >> 6) - first] |= np.uint64(1) << np.uint64(row & 63)
            if is_cumulative[axis]:
                for register in range(start + 1, start + count):
                    for word in range(width):
                        registers[register, word] |= registers[register - 1, word]
        for single in range(len(singles)):
            for word in range(used):
                registers[first_single + single, word] = singles[single, first + word]
        for i in range(len(instructions)):
            target, left, right = instructions[i, 0], instructions[i, 1], instructions[i, 2]
            flip_left, flip_right = -np.uint64(left & 1), -np.uint64(right & 1)
            a, b = registers[left >> 1], registers[right >> 1]
            if target >= 0:
                out = registers[target]
                for word in range(width):
                    out[word] = (a[word] ^ flip_left) & (b[word] ^ flip_right)
            else:
                flip = -np.uint64(instructions[i, 3])
                result = bits[~target, first : first + used]
                for word in range(used):
                    result[word] = ((a[word] ^ flip_left) & (b[word] ^ flip_right)) ^ flip


@compiled
def expand(octets: Array, counts: Array, positions: Array) -> None:
    """``positions`` needs room for eight more at its end."""
    at = 0
    for row in range(len(octets)):
        for i in range(octets.shape[1]):
            octet = octets[row, i]
            base = np.int32(8 * i)
            p0 = base + POSITIONS_IN_OCTET[octet, 0]
            p1 = base + POSITIONS_IN_OCTET[octet, 1]
            p2 = base + POSITIONS_IN_OCTET[octet, 2]
            p3 = base + POSITIONS_IN_OCTET[octet, 3]
            p4 = base + POSITIONS_IN_OCTET[octet, 4]
            p5 = base + POSITIONS_IN_OCTET[octet, 5]
            p6 = base + POSITIONS_IN_OCTET[octet, 6]
            p7 = base + POSITIONS_IN_OCTET[octet, 7]
            positions[at] = p0
            positions[at + 1] = p1
            positions[at + 2] = p2
            positions[at + 3] = p3
            positions[at + 4] = p4
            positions[at + 5] = p5
            positions[at + 6] = p6
            positions[at + 7] = p7
            at += COUNT_OF_OCTET[octet]
