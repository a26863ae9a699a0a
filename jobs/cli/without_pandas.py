"""Keeps a job from importing pandas, which takes longer than most answers.

PyArrow imports pandas, if it is installed, to ask whether a list is one of its series. No job uses pandas, but users of
the package do, and user code and Spark may.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this job does without pandas", name=name)


_FINDER = _WithoutPandas()


@contextmanager
def without_pandas() -> Iterator[None]:
    """In this context, pandas cannot be imported, unless it was before, or :func:`allow_pandas` is called."""
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        allow_pandas()


def allow_pandas() -> None:
    """Ends the effect of :func:`without_pandas`: before user code or Spark runs in this process."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
