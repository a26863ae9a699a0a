"""Two operations of loops in LLVM's own language, which Numba does not compile well from Python.

:mod:`filtering.kernels.registers` imports this module when Numba compiles a loop that uses one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from filtering.kernels.registers import REGISTER_WORDS

_POSITION = ir.IntType(32)


def address(context: Any, builder: Any, type: Any, array: Any, at: Any) -> Any:
    """A pointer to an element of an array of Numba's ``type``."""
    return builder.gep(cgutils.create_struct_proxy(type)(context, builder, array).data, [at])  # type: ignore[no-untyped-call]


def repeated(builder: Any, value: Any, count: int) -> Any:
    """A vector of ``count`` elements that are all ``value``."""
    vector = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    one = builder.insert_element(vector, value, ir.Constant(_POSITION, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_POSITION, count), [0] * count))


# Positions of set bits.
#
# Several are stored at once as a vector. Numba does not compile a Python loop to that: with one, 1,000 groups take 2
# times as long, 10,000 groups 3 times. Processors with AVX-512 VBMI2 find the positions of 64 bits with one
# instruction; others look them up, 8 bits at a time, which takes a third longer.


_OCTET, _INTEGER, _INDEX = (ir.IntType(bits) for bits in (8, 32, 64))
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


# ANDs of registers.
#
# Numba compiles a Python loop over the words of two registers with a check whether they overlap, and with a rest that
# is not vectorized. With it, the gates of 10,000 groups take 1.4 times as long.


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
