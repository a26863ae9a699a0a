"""Numba's decorator with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy.typing as npt

Array = npt.NDArray[Any]
Int = Any  # an int or a NumPy integer: Numba takes both
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile the function on its first call, and cache the result on disk. Other threads run while it runs.

    It is compiled in each process if neither the project's folder nor the user's home is writable.
    """
    try:
        return cast(_Function, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
    except RuntimeError:  # no locator available
        return cast(_Function, numba.njit(nogil=True, error_model="numpy")(function))
