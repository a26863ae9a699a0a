"""Compiled loops where nothing can be cached on disk."""

from __future__ import annotations

import pytest
from numba.core.caching import CompileResultCacheImpl

from filtering.numba_compile import compiled


def test_a_folder_that_nobody_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba finds no place for its cache if the project and the home of the user are read-only."""
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])

    def twice(number: int) -> int:
        return 2 * number

    assert compiled(twice)(21) == 42
