"""Numba's decorators, typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

Array = npt.NDArray[Any]
Int = Any  # an int or a NumPy integer, which are one to Numba
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compiled on its first call, and cached on disk from then on."""
    return cast(_Function, numba.njit(cache=True, error_model="numpy")(function))


def _load_word(typing_context: Any, octets: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        word = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(octets, types.int64), generate


def _store_positions(typing_context: Any, into: Any, at: Any, table: Any, word: Any, base: Any) -> Any:
    octet, integer, index = (ir.IntType(bits) for bits in (8, into.dtype.bitwidth, 64))
    spread = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
    octets, integers = ir.VectorType(octet, 8), ir.VectorType(integer, 8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, _, word, base = arguments
        base = builder.trunc(base, integer)
        one = builder.insert_element(ir.Constant(integers, ir.Undefined), base, ir.IntType(32)(0))
        bases = builder.shuffle_vector(one, one, spread)
        for i in range(8):
            row = builder.and_(builder.lshr(word, index(8 * i)), index(255))
            source = _address(context, builder, signature.args[2], arguments[2], builder.shl(row, index(3)))
            positions = builder.zext(builder.load(builder.bitcast(source, octets.as_pointer())), integers)
            positions = builder.add(builder.add(positions, bases), ir.Constant(integers, [8 * i] * 8))
            target = _address(context, builder, signature.args[0], arguments[0], at)
            builder.store(positions, builder.bitcast(target, integers.as_pointer())).align = into.dtype.bitwidth // 8
            at = builder.add(at, builder.ctpop(row))
        return at

    return types.int64(into, types.int64, table, types.uint64, types.int32), generate


def _equal_bits(typing_context: Any, values: Any, at: Any, value: Any) -> Any:
    integer, index, integers = ir.IntType(32), ir.IntType(64), ir.VectorType(ir.IntType(32), 64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, value = arguments
        address = _address(context, builder, signature.args[0], array, at)
        loaded = builder.load(builder.bitcast(address, integers.as_pointer()))
        loaded.align = 4
        one = builder.insert_element(ir.Constant(integers, ir.Undefined), value, integer(0))
        wanted = builder.shuffle_vector(one, one, ir.Constant(integers, [0] * 64))
        return builder.bitcast(builder.icmp_signed("==", loaded, wanted), index)

    return types.uint64(values, types.int64, types.int32), generate


def _count_ones(typing_context: Any, word: Any) -> Any:
    return types.int64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


def _address(context: Any, builder: Any, type: Any, array: Any, at: Any) -> Any:
    return builder.gep(cgutils.create_struct_proxy(type)(context, builder, array).data, [at])  # type: ignore[no-untyped-call]


load_word: Any = intrinsic(_load_word)
load_word.__doc__ = "load_word(octets, at): the 8 bytes from octets[at] on as a uint64, wherever they start."
store_positions: Any = intrinsic(_store_positions)
store_positions.__doc__ = """store_positions(into, at, table, word, base): base plus the position of each set bit of a
uint64 to into[at:] (int32 or uint16), and what follows up to 8 more is overwritten; returns the end of those.
``table``: uint8, for each octet the positions of its set bits.
"""
equal_bits: Any = intrinsic(_equal_bits)
equal_bits.__doc__ = "equal_bits(values, at, value): which of values[at:at + 64] (int32) are value, as a uint64."
count_ones: Any = intrinsic(_count_ones)
count_ones.__doc__ = "count_ones(word): the set bits of a uint64."
trailing_zeros: Any = intrinsic(_trailing_zeros)
trailing_zeros.__doc__ = "trailing_zeros(word): the zero bits below the lowest set bit of a uint64."
