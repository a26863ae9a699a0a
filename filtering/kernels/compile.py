"""The decorator of loops that Numba compiles, :func:`compiled`, and the arrays that loops take.

To import Numba takes a third of a second, longer than many questions. So a loop is Numba's only from its first call on
(:mod:`filtering.kernels.dispatcher`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Int = Any  # an int or a NumPy integer: Numba takes both
_Function = TypeVar("_Function", bound=Callable[..., Any])


def read_only(array: Array) -> Array:
    """A read-only view. Numba would compile a function once more for writable arrays."""
    view = array.view()
    view.flags.writeable = False
    return view


def allocate(shape: int | tuple[int, int], type: type[np.generic]) -> Array:
    """Memory from Arrow's pool, which reuses the pages of the last batch: new pages cost more than most loops."""
    return np.frombuffer(pa.allocate_buffer(int(np.prod(shape)) * np.dtype(type).itemsize), type).reshape(shape)


def compiled(function: _Function) -> _Function:
    """Compiles the function on its first call, and caches the result on disk. Other threads run while it runs.

    To type checkers, it keeps its types.
    """
    return cast(_Function, _Loop(function))


_LOCK = threading.RLock()


class _Loop:
    """A function that becomes Numba's when it is first called, by Python or by another loop."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._dispatcher: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return (self._dispatcher or self._made())(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Numba's own attributes. With ``_numba_type_``, Numba takes the loop where it compiles another one."""
        if name.startswith("__") or name == "_dispatcher":
            raise AttributeError(name)
        return getattr(self._dispatcher or self._made(), name)

    def _made(self) -> Any:
        from filtering.kernels.dispatcher import dispatcher_of

        with _LOCK:
            if self._dispatcher is None:
                self._dispatcher = dispatcher_of(self.__wrapped__)
            return self._dispatcher


class Intrinsic:
    """A function that loops call, and that is written in LLVM's own language: ``make`` returns Numba's intrinsic."""

    def __init__(self, make: Callable[[], Any], doc: str) -> None:
        self._make = make
        self.__doc__ = doc

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        intrinsic, context = self._make(), cpu_target.typing_context
        context.refresh()
        return context.resolve_value_type(intrinsic)


class CompileListener(Protocol):
    """Is told when Numba begins and ends to compile a function, in any thread; one may be compiled within another."""

    def begin(self) -> None: ...
    def end(self) -> None: ...


LISTENERS: list[CompileListener] = []
