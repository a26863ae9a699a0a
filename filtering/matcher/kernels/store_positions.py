"""Lists the positions of set bits. This loop is written in LLVM's own language.

It stores several positions at a time as a vector. Numba does not compile a Python loop to that: with one, 1,000 groups
take 2 times as long, 10,000 groups 3 times. Processors with AVX-512 VBMI2 find the positions of 64 bits with one
instruction; others look them up, 8 bits at a time, which takes a third longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from filtering.matcher.kernels.llvm_vectors import address, repeated

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
    chosen_first = cgutils.get_or_insert_function(builder.module, taken, name)  # type: ignore[no-untyped-call]
    every = ir.Constant(octets, list(range(64)))
    found = builder.call(chosen_first, [every, ir.Constant(octets, [0] * 64), builder.bitcast(word, mask)])
    count = builder.ctpop(word)
    for first in range(0, 64, 16):
        with builder.if_then(builder.icmp_unsigned(">", count, _INDEX(first))):
            chosen = ir.Constant(ir.VectorType(_INTEGER, 16), list(range(first, first + 16)))
            positions = builder.shuffle_vector(found, found, chosen)
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
