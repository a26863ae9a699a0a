"""Parts of loops that are written in LLVM's own language."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

_POSITION = ir.IntType(32)


def address(context: Any, builder: Any, type: Any, array: Any, at: Any) -> Any:
    """A pointer to an element of an array of Numba's ``type``."""
    return builder.gep(cgutils.create_struct_proxy(type)(context, builder, array).data, [at])  # type: ignore[no-untyped-call]


def repeated(builder: Any, value: Any, count: int) -> Any:
    """A vector of ``count`` elements that are all ``value``."""
    vector = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    one = builder.insert_element(vector, value, ir.Constant(_POSITION, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_POSITION, count), [0] * count))
