"""Loops over packed bits: they combine, count and list them."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.and_registers import REGISTER_WORDS, and_registers
from filtering.matcher.kernels.class_registers import load_classes, load_cumulative_classes
from filtering.matcher.kernels.store_positions import store_positions
from filtering.matcher.kernels.words import count_ones
from filtering.numba_compile import Array, Int, compiled

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
POSITIONS_IN_OCTET = np.ascontiguousarray(np.argsort(1 - _BITS, axis=1, kind="stable").astype(np.uint8))


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
    """Runs the instructions on one register's words at a time. ``registers`` has one more than they use."""
    words, last = bits.shape[1], len(registers) - 1
    all_registers, all_bits = registers.reshape(-1), bits.reshape(-1)
    registers[0] = 0
    for first in range(0, words, REGISTER_WORDS):
        used = min(REGISTER_WORDS, words - first)
        for axis in range(len(classes)):
            of_axis = registers[starts[axis] : starts[axis] + counts[axis]]
            if is_cumulative[axis]:
                load_cumulative_classes(classes[axis], first, used, of_axis)
            else:
                load_classes(classes[axis], first, used, of_axis)
        for single in range(len(singles)):
            for word in range(used):
                registers[first_single + single, word] = singles[single, first + word]
        for i in range(len(instructions)):
            target = np.int64(instructions[i, 0])
            left, right = np.int64(instructions[i, 1]), np.int64(instructions[i, 2])
            at_left, at_right = (left >> 1) * REGISTER_WORDS, (right >> 1) * REGISTER_WORDS
            flips = -np.uint64(left & 1), -np.uint64(right & 1), -np.uint64(instructions[i, 3])
            if target >= 0:
                and_registers(all_registers, target * REGISTER_WORDS, all_registers, at_left, at_right, flips)
            elif used == REGISTER_WORDS:
                and_registers(all_bits, ~target * words + first, all_registers, at_left, at_right, flips)
            else:
                and_registers(all_registers, last * REGISTER_WORDS, all_registers, at_left, at_right, flips)
                for word in range(used):  # Numba takes seconds to compile the assignment of a slice.
                    bits[~target, first + word] = registers[last, word]


@compiled
def count(bits: Array, counts: Array) -> None:
    """The number of set bits of each row of ``bits``."""
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
