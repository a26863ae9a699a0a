"""Loops over packed bits and registers of them.

A register has the bits of 64 words of messages (REGISTER_WORDS). ``evaluate`` runs a program of the matcher: it fills
the registers of an axis with the messages of each class, then runs the instructions, then goes on to the next 64 words.

Operations on single words are written so that LLVM compiles their loops to one or two instructions (load_word,
equal_bits, count_ones, lowest_one). Two loops that Numba does not compile well are written in LLVM's own language: the
positions of set bits (store_positions), and the AND of two registers (and_registers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from filtering.kernels.compile import Array, Int, compiled

_POSITION = ir.IntType(32)


def address(context: Any, builder: Any, type: Any, array: Any, at: Any) -> Any:
    """A pointer to an element of an array of Numba's ``type``."""
    return builder.gep(cgutils.create_struct_proxy(type)(context, builder, array).data, [at])  # type: ignore[no-untyped-call]


def repeated(builder: Any, value: Any, count: int) -> Any:
    """A vector of ``count`` elements that are all ``value``."""
    vector = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    one = builder.insert_element(vector, value, ir.Constant(_POSITION, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_POSITION, count), [0] * count))


# Words of 64 bits.


_ONE, _TWO, _FOUR, _TOP_OCTET = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_EACH_OCTET = np.uint64(0x0101010101010101)
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
    return np.int64((((word + (word >> _FOUR)) & _HALF_OF_EIGHT) * _EACH_OCTET) >> _TOP_OCTET)


@compiled
def lowest_one(word: Int) -> Int:
    """The position of the lowest set bit of a uint64 that is not 0."""
    return count_ones((word & (~word + _ONE)) - _ONE)


# Positions of set bits.
#
# Several are stored at once as a vector. Numba does not compile a Python loop to that: with one, 1,000 groups take 2
# times as long, 10,000 groups 3 times. Processors with AVX-512 VBMI2 find the positions of 64 bits with one
# instruction; others look them up, 8 bits at a time, which takes a third longer.


_OCTET, _INTEGER, _INDEX = (ir.IntType(bits) for bits in (8, 32, 64))
STORED_AT_ONCE = 16
VBMI2 = "+avx512vbmi2"


def storing(way_for: Callable[[str], Any]) -> Any:
    """An intrinsic like ``store_positions``. ``way_for`` takes the features of the processor, as LLVM lists them."""

    def store_positions(typing_context: Any, into: Any, at: Any, table: Any, word: Any, base: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, _, features = context.codegen().magic_tuple()
            return way_for(features)(context, builder, signature, arguments)

        return types.int64(into, types.int64, table, types.uint64, types.int32), generate

    return intrinsic(store_positions)


def compress(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The code of store_positions for processors with VBMI2: 64 positions by one instruction, stored 16 at a time."""
    _, at, _, word, base = arguments
    octets = ir.VectorType(_OCTET, 64)
    mask = ir.VectorType(ir.IntType(1), 64)
    taken = ir.FunctionType(octets, [octets, octets, mask])
    name = "llvm.x86.avx512.mask.compress.v64i8"
    compress_octets = cgutils.get_or_insert_function(builder.module, taken, name)  # type: ignore[no-untyped-call]
    every = ir.Constant(octets, list(range(64)))
    compressed = builder.call(compress_octets, [every, ir.Constant(octets, [0] * 64), builder.bitcast(word, mask)])
    count = builder.ctpop(word)
    for first in range(0, 64, 16):
        with builder.if_then(builder.icmp_unsigned(">", count, _INDEX(first))):
            lanes = ir.Constant(ir.VectorType(_INTEGER, 16), list(range(first, first + 16)))
            positions = builder.shuffle_vector(compressed, compressed, lanes)
            _store(context, builder, signature, arguments, positions, base, builder.add(at, _INDEX(first)))
    return builder.add(at, count)


def look_up(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The code of store_positions for other processors: the positions in each octet of the word are in the table."""
    _, at, _, word, base = arguments
    octets = ir.VectorType(_OCTET, 8)
    for first in range(0, 64, 8):
        row = builder.and_(builder.lshr(word, _INDEX(first)), _INDEX(255))
        source = address(context, builder, signature.args[2], arguments[2], builder.shl(row, _INDEX(3)))
        positions = builder.load(builder.bitcast(source, octets.as_pointer()))
        _store(context, builder, signature, arguments, positions, builder.add(base, _INTEGER(first)), at)
        at = builder.add(at, builder.ctpop(row))
    return at


def _store(context: Any, builder: Any, signature: Any, arguments: Any, positions: Any, base: Any, at: Any) -> None:
    """Stores ``base`` plus each of the positions, a vector of octets, from ``at`` on."""
    width = positions.type.count
    integers = ir.VectorType(_INTEGER, width)
    target = address(context, builder, signature.args[0], arguments[0], at)
    values = builder.add(builder.zext(positions, integers), repeated(builder, base, width))
    builder.store(values, builder.bitcast(target, integers.as_pointer())).align = 4


store_positions: Any = storing(lambda features: compress if VBMI2 in features else look_up)
store_positions.__doc__ = """store_positions(into, at, table, word, base): write base plus the position of each set bit
of a uint64 to into[at:] (int32). Returns the end of the positions; up to STORED_AT_ONCE elements after it are
overwritten. ``table``: uint8, for each octet the positions of its set bits.
"""


# ANDs of registers.
#
# Numba compiles a Python loop over the words of two registers with a check whether they overlap, and with a rest that
# is not vectorized. With it, the gates of 10,000 groups take 1.4 times as long.


REGISTER_WORDS = 64
"""Words of 64 bits in a register."""
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, 8)
_FLIPS = types.UniTuple(types.uint64, 3)  # type: ignore[no-untyped-call]


def _and_registers(typing_context: Any, into: Any, at: Any, registers: Any, left: Any, right: Any, flips: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def vectors(array: int, at: int) -> Any:
            pointer = address(context, builder, signature.args[array], arguments[array], arguments[at])
            return builder.bitcast(pointer, _VECTOR.as_pointer())

        targets, lefts, rights = vectors(0, 1), vectors(2, 3), vectors(2, 4)
        flips = (builder.extract_value(arguments[5], i) for i in range(3))
        left_flip, right_flip, result_flip = (repeated(builder, flip, _VECTOR.count) for flip in flips)
        for number in range(REGISTER_WORDS // _VECTOR.count):
            at = [ir.Constant(_WORD, number)]
            a, b = (builder.load(builder.gep(operand, at), align=8) for operand in (lefts, rights))
            result = builder.and_(builder.xor(a, left_flip), builder.xor(b, right_flip))
            builder.store(builder.xor(result, result_flip), builder.gep(targets, at), align=8)
        return context.get_dummy_value()

    return types.none(into, types.int64, registers, types.int64, types.int64, _FLIPS), generate


and_registers: Any = intrinsic(_and_registers)
and_registers.__doc__ = """and_registers(into, at, registers, left, right, flips): AND two registers.

Writes ((registers[left:] ^ flips[0]) & (registers[right:] ^ flips[1])) ^ flips[2] to into[at:], REGISTER_WORDS words.
``into`` and ``registers``: uint64, contiguous. ``flips``: three uint64, each 0 or all bits set.
"""


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
