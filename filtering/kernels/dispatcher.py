"""Numba's compiler, as the loops of mqsieve use it. :mod:`filtering.kernels.compile` imports it at the first call.

It is ``numba.njit(cache=True)`` with differences. Functions run without Python's lock, and may use whole vector
registers: LLVM prefers half of a register of 512 bits on Intel's processors, which made the matcher up to a third
slower. A function in the cache counts only as long as no module of this project that its file imports has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering

from filtering.kernels.compile import LISTENERS
from filtering.source_code import digest, with_imports


class WholeRegisters(CompilerBase):
    """For ``numba.njit(pipeline_class=WholeRegisters)``. Other functions in the process stay as they are."""

    def define_pipelines(self) -> list[Any]:
        pipeline: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        pipeline.passes = [(_Lowering if step is NativeLowering else step, text) for step, text in pipeline.passes]
        return [pipeline]


class _Lower(Lower):
    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)  # type: ignore[no-untyped-call]
        # llvmlite's own add() takes only attributes without a value.
        set.add(self.function.attributes, '"prefer-vector-width"="512"')


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(BaseNativeLowering):
    _name: Any = "lowering_to_whole_registers"
    lowering_class = _Lower


# Functions, and their cache on disk.


_config: Any = numba.config
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "pipeline_class": WholeRegisters}


def dispatcher_of(function: Callable[..., Any]) -> Any:
    """Numba's function, which compiles when it is called, and caches the result on disk.

    It is compiled in each process if neither the project's folder nor the user's home is writable.
    """
    locators = _config.CACHE_LOCATOR_CLASSES
    _config.CACHE_LOCATOR_CLASSES = ",".join(f"{place.__module__}.{place.__name__}" for place in PLACES)
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no locator available
        return numba.njit(**_OPTIONS)(function)
    finally:
        _config.CACHE_LOCATOR_CLASSES = locators


class _StampOfAllSources:
    """A cached function is out of date if a module that its module imports has changed, directly or not.

    Numba compiles functions and constants of other modules into a function, but looks only at the file of the function.
    """

    _sources: list[Path]

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        locator = super().from_function(py_func, py_file)  # type: ignore[misc]
        if locator is not None:
            file = Path(py_file).absolute()
            names = py_func.__module__.split(".")
            locator._sources = with_imports(file, file.parents[len(names) - 1])
        return locator

    def get_source_stamp(self) -> bytes:
        return digest(self._sources)


class GivenFolder(_StampOfAllSources, UserProvidedCacheLocator):
    """The folder in NUMBA_CACHE_DIR."""


class ProjectFolder(_StampOfAllSources, InTreeCacheLocator):
    """The folder __pycache__ beside the function's file."""


class HomeFolder(_StampOfAllSources, UserWideCacheLocator):
    """A folder in the user's home."""


PLACES = (GivenFolder, ProjectFolder, HomeFolder)
"""Where compiled functions are cached: in the first of these that can be written."""


def is_cached() -> bool:
    """Whether there is such a folder. Without one, each process compiles the functions again."""
    return any(place.from_function(dispatcher_of, __file__) is not None for place in PLACES)


# Who listens.


class _Compilations(event.Listener):
    """Tells the listeners. Loading a function from the cache is not compiling it."""

    def on_start(self, _: Any) -> None:
        for listener in LISTENERS:
            listener.begin()

    def on_end(self, _: Any) -> None:
        for listener in LISTENERS:
            listener.end()


_events: Any = event
_events.register("numba:compile", _Compilations())
