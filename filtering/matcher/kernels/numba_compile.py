"""Numba's decorators, typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compiled on its first call, and cached on disk from then on."""
    result: _Function = numba.njit(cache=True, error_model="numpy")(function)
    return result


def _load_word(typing_context: Any, octets: Any, at: Any) -> Any:
    """The 8 bytes from octets[at] on as a uint64, wherever they start."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(octets, types.int64), generate


load_word = intrinsic(_load_word)
