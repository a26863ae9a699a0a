"""ANDs registers of packed bits. This loop is written in LLVM's own language.

Numba compiles a Python loop over the words of two registers with a check whether they overlap, and with a rest that is
not vectorized. With it, the gates of 10,000 groups take 1.4 times as long.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from filtering.matcher.kernels.llvm_vectors import address, repeated

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
        of_left, of_right, of_result = (repeated(builder, flip, _VECTOR.count) for flip in flips)
        for number in range(REGISTER_WORDS // _VECTOR.count):
            at = [ir.Constant(_WORD, number)]
            a, b = (builder.load(builder.gep(operand, at), align=8) for operand in (lefts, rights))
            result = builder.and_(builder.xor(a, of_left), builder.xor(b, of_right))
            builder.store(builder.xor(result, of_result), builder.gep(targets, at), align=8)
        return context.get_dummy_value()

    return types.none(into, types.int64, registers, types.int64, types.int64, _FLIPS), generate


and_registers: Any = intrinsic(_and_registers)
and_registers.__doc__ = """and_registers(into, at, registers, left, right, flips): AND two registers.

Writes ((registers[left:] ^ flips[0]) & (registers[right:] ^ flips[1])) ^ flips[2] to into[at:], REGISTER_WORDS words.
``into`` and ``registers``: uint64, contiguous. ``flips``: three uint64, each 0 or all bits set.
"""
