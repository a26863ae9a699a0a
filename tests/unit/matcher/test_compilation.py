"""The cache of compiled loops on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from filtering import numba_compile

ROOT = Path(__file__).resolve().parents[3]


def test_a_folder_that_nobody_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba finds no place for its cache if the project and the home of the user are read-only."""
    for place in numba_compile.PLACES:
        monkeypatch.setattr(place, "from_function", lambda *_: None)

    def twice(number: int) -> int:
        return 2 * number

    assert numba_compile.compiled(twice)(21) == 42


def test_code_compiled_with_an_older_version_of_another_module_is_not_used(tmp_path: Path) -> None:
    """An update may change only the module of a function that is compiled into the functions of other modules."""
    header = "from filtering.numba_compile import compiled\n"
    (tmp_path / "outer.py").write_text(
        header + "from middle import middle\n@compiled\ndef outer():\n return middle()\n"
    )
    (tmp_path / "middle.py").write_text(
        header + "from inner import (\n ONE,\n)\n@compiled\ndef middle():\n return ONE\n"
    )

    def answer(one: int) -> str:
        (tmp_path / "inner.py").write_text(f"ONE = {one}\n")
        command = [sys.executable, "-c", "from outer import outer; print(outer(), len(outer.stats.cache_hits))"]
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout

    assert [answer(1), answer(1), answer(2)] == ["1 0\n", "1 1\n", "2 0\n"]
