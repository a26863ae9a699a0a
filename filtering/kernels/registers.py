"""Loops over packed bits and registers of them.

A register has the bits of 64 words of messages (REGISTER_WORDS). ``evaluate`` runs a program of the matcher: it fills
the registers of an axis with the messages of each class, then runs the instructions, then goes on to the next 64 words.

Operations on single words are written so that LLVM compiles their loops to one or two instructions (load_word,
equal_bits, count_ones, lowest_one). Two loops that Numba does not compile well are written in LLVM's own language: the
positions of set bits (store_positions), and the AND of two registers (and_registers).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from filtering.kernels.compile import Array, Int, Intrinsic, compiled

# Words of 64 bits.


_ONE, _TWO, _FOUR, _TOP_OCTET = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
EACH_OCTET, HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
KEPT = np.array([2 ** (8 * count) - 1 for count in range(9)], np.uint64)
"""``word & KEPT[n]`` keeps the first n octets."""
_BLANKS, _QUOTES, _BACKSLASHES = (np.uint64(octet * 0x0101010101010101) for octet in b' "\\')
_HALF_OF_TWO, _HALF_OF_FOUR, _HALF_OF_EIGHT = (
    np.uint64(0x5555555555555555),
    np.uint64(0x3333333333333333),
    np.uint64(0x0F0F0F0F0F0F0F0F),
)


@compiled
def load_word(octets: Array, at: Int) -> Int:
    """The 8 octets from octets[at] on as a uint64. They need not be aligned."""
    first = np.uint64(at)
    word = np.uint64(octets[first])
    word |= np.uint64(octets[first + np.uint64(1)]) << np.uint64(8)
    word |= np.uint64(octets[first + np.uint64(2)]) << np.uint64(16)
    word |= np.uint64(octets[first + np.uint64(3)]) << np.uint64(24)
    word |= np.uint64(octets[first + np.uint64(4)]) << np.uint64(32)
    word |= np.uint64(octets[first + np.uint64(5)]) << np.uint64(40)
    word |= np.uint64(octets[first + np.uint64(6)]) << np.uint64(48)
    word |= np.uint64(octets[first + np.uint64(7)]) << np.uint64(56)
    return word


@compiled
def json_marks(word: Int) -> Int:
    """The octets of a word that end a plain JSON text: quotes, backslashes, and those below the blank.

    Each has its high bit set. The lowest bit set is right, those above may not be.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    marks = (quotes - EACH_OCTET) & ~quotes | (backslashes - EACH_OCTET) & ~backslashes | (word - _BLANKS) & ~word
    return marks & HIGH_BITS


@compiled
def equal_bits(values: Array, at: Int, value: Int) -> Int:
    """The elements of values[at:at + 64] that equal ``value``, as bits of a uint64."""
    word = np.uint64(0)
    for i in range(64):
        word |= np.uint64(values[np.uint64(at + i)] == value) << np.uint64(i)
    return word


@compiled
def count_ones(word: Int) -> Int:
    """The number of set bits of a uint64."""
    word -= (word >> _ONE) & _HALF_OF_TWO
    word = (word & _HALF_OF_FOUR) + ((word >> _TWO) & _HALF_OF_FOUR)
    return np.int64((((word + (word >> _FOUR)) & _HALF_OF_EIGHT) * EACH_OCTET) >> _TOP_OCTET)


@compiled
def lowest_one(word: Int) -> Int:
    """The position of the lowest set bit of a uint64 that is not 0."""
    return count_ones((word & (~word + _ONE)) - _ONE)


# Operations in LLVM's own language.


STORED_AT_ONCE = 16
REGISTER_WORDS = 64
"""Words of 64 bits in a register."""


def _store_positions() -> Any:
    from filtering.kernels.llvm import store_positions

    return store_positions


def _and_registers() -> Any:
    from filtering.kernels.llvm import and_registers

    return and_registers


store_positions: Any = Intrinsic(
    _store_positions,
    """store_positions(into, at, table, word, base): write base plus the position of each set bit of a uint64 to
    into[at:] (int32). Returns the end of the positions; up to STORED_AT_ONCE elements after it are overwritten.
    ``table``: uint8, for each octet the positions of its set bits.
    """,
)
and_registers: Any = Intrinsic(
    _and_registers,
    """and_registers(into, at, registers, left, right, flips): AND two registers.

    Writes ((registers[left:] ^ flips[0]) & (registers[right:] ^ flips[1])) ^ flips[2] to into[at:], REGISTER_WORDS
    words. ``into`` and ``registers``: uint64, contiguous. ``flips``: three uint64, each 0 or all bits set.
    """,
)


# Classes to registers.


COMPARED = 24
"""Up to this number of classes, comparing all messages with each class is cheaper than setting each message's bit."""
UNSORTED = 128
"""Up to this number of cumulative classes, setting bits in any order is cheaper than sorting messages by class."""


@compiled
def load_classes(classes: Array, first: Int, used: Int, registers: Array) -> None:
    """Fills one register for each class with the messages of that class, for ``used`` words from word ``first``."""
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
def load_cumulative_classes(classes: Array, first: Int, used: Int, registers: Array) -> None:
    """Like load_classes, but a register also has the messages of all lower classes."""
    count, width = registers.shape
    if count <= UNSORTED:
        load_classes(classes, first, used, registers)
        for register in range(1, count):
            for word in range(width):
                registers[register, word] |= registers[register - 1, word]
        return
    begin, end = first << 6, min(len(classes), (first + used) << 6)
    ends, by_class = np.zeros(count + 1, np.int32), np.empty(end - begin, np.int32)
    for row in range(begin, end):
        if classes[row] < count:
            ends[classes[row] + 1] += 1
    for register in range(count):
        ends[register + 1] += ends[register]
    for row in range(begin, end):
        if classes[row] < count:
            by_class[ends[classes[row]]] = row - begin
            ends[classes[row]] += 1
    so_far = np.zeros(width, np.uint64)
    at = 0
    for register in range(count):
        for i in range(at, ends[register]):
            so_far[by_class[i] >> 6] |= np.uint64(1) << np.uint64(by_class[i] & 63)
        at = ends[register]
        for word in range(width):
            registers[register, word] = so_far[word]


# Programs, counts and lists.


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
            axis_registers = registers[starts[axis] : starts[axis] + counts[axis]]
            if is_cumulative[axis]:
                load_cumulative_classes(classes[axis], first, used, axis_registers)
            else:
                load_classes(classes[axis], first, used, axis_registers)
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
def expand(bits: Array, bit_rows: Array, starts: Array, positions: Array) -> None:
    """The positions of the set bits of ``bit_rows``. ``positions`` needs STORED_AT_ONCE elements more at its end."""
    for i in range(len(bit_rows)):
        at = starts[i]
        row = bits[bit_rows[i]]
        for j in range(len(row)):
            if row[j] != 0:
                at = store_positions(positions, at, POSITIONS_IN_OCTET, row[j], np.int32(64 * j))
        positions[at : starts[i + 1]] = 0
