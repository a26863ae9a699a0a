"""Numba's decorator, typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy.typing as npt

Array = npt.NDArray[Any]
Int = Any  # an int or a NumPy integer, which are one to Numba
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compiled on its first call, and cached on disk from then on."""
    return cast(_Function, numba.njit(cache=True, error_model="numpy")(function))
