"""Loops over packed bits: they combine, count and list them."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.store_positions import store_positions
from filtering.matcher.kernels.words import count_ones, equal_bits
from filtering.numba_compile import Array, Int, compiled

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
POSITIONS_IN_OCTET = np.ascontiguousarray(np.argsort(1 - _BITS, axis=1, kind="stable").astype(np.uint8))

# Up to this number of classes, comparing all messages with each class is cheaper than setting each message's bit.
COMPARED = 24


@compiled
def load_classes(classes: Array, first: Int, used: Int, registers: Array) -> None:
    """Fill one register for each class with the messages of that class, for ``used`` words from word ``first``."""
    count = len(registers)
    whole = min(used, (len(classes) >> 6) - first) if count <= COMPARED else 0
    for register in range(count):
        for word in range(whole):
            registers[register, word] = equal_bits(classes, (first + word) << 6, np.int32(register))
        for word in range(whole, registers.shape[1]):
            registers[register, word] = 0
    for row in range((first + whole) << 6, min(len(classes), (first + used) << 6)):
        if classes[row] < count:
            registers[classes[row], (row >> 6) - first] |= np.uint64(1) << np.uint64(row & 63)


@compiled
def evaluate(
    classes: Array,
    starts: Array,
    counts: Array,
    is_cumulative: Array,
    singles: Array,
    first_single: Int,
    instructions: Array,
    registers: Array,
    bits: Array,
) -> None:
    """Run the instructions on one block of words at a time. A block has as many words as a register."""
    width = registers.shape[1]
    words = bits.shape[1]
    for first in range(0, words, width):
        used = min(width, words - first)
        for axis in range(len(classes)):
            start, end = starts[axis], starts[axis] + counts[axis]
            load_classes(classes[axis], first, used, registers[start:end])
            if is_cumulative[axis]:
                for register in range(start + 1, end):
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
def count(bits: Array, counts: Array) -> None:
    for row in range(len(bits)):
        ones = 0
        for word in bits[row]:
            ones += count_ones(word)
        counts[row] = ones


@compiled
def expand(bits: Array, chosen: Array, starts: Array, positions: Array) -> None:
    """The positions of the set bits of rows ``chosen``. ``positions`` needs STORED_AT_ONCE elements more at its end."""
    for i in range(len(chosen)):
        at = starts[i]
        row = bits[chosen[i]]
        for j in range(len(row)):
            if row[j] != 0:
                at = store_positions(positions, at, POSITIONS_IN_OCTET, row[j], np.int32(64 * j))
        positions[at : starts[i + 1]] = 0
