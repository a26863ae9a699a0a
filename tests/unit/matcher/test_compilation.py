"""The cache of compiled loops on disk."""

from __future__ import annotations

import os
import shutil
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


def write_modules(folder: Path, package: str) -> None:
    """A compiled function that calls one of another module, which has a constant of a third one."""
    header = "from filtering.numba_compile import compiled\n"
    (folder / "outer.py").write_text(
        header + f"from {package}middle import middle\n@compiled\ndef outer():\n return middle()\n"
    )
    (folder / "middle.py").write_text(
        header + f"from {package}inner import (\n ONE,\n)\n@compiled\ndef middle():\n return ONE\n"
    )


def answer(folder: Path, package: str, one: int) -> str:
    """What the function returns if the constant is ``one``, and how many functions were loaded from the cache."""
    (folder / package.replace(".", "/") / "inner.py").write_text(f"ONE = {one}\n")
    program = f"from {package}outer import outer; print(outer(), len(outer.stats.cache_hits))"
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout


def test_code_compiled_with_an_older_version_of_another_module_is_not_used(tmp_path: Path) -> None:
    """An update may change only the module of a function that is compiled into the functions of other modules."""
    write_modules(tmp_path, "")
    assert [answer(tmp_path, "", one) for one in (1, 2)] == ["1 0\n", "2 0\n"]


def test_a_package_that_is_a_link_to_a_folder_of_another_name(tmp_path: Path) -> None:
    """As on the workers of YARN."""
    unpacked, folder = tmp_path / "unpacked" / "box.zip", tmp_path / "work"
    unpacked.mkdir(parents=True)
    folder.mkdir()
    (folder / "box").symlink_to(unpacked)
    write_modules(unpacked, "box.")
    assert [answer(folder, "box.", one) for one in (1, 1, 2)] == ["1 0\n", "1 1\n", "2 0\n"]


def test_a_copy_of_the_code_brings_what_was_compiled(tmp_path: Path) -> None:
    """As to the workers of a cluster, which would compile for most of a minute."""
    folder = tmp_path / "here"
    folder.mkdir()
    write_modules(folder, "")
    assert answer(folder, "", 1) == "1 0\n"
    assert answer(shutil.copytree(folder, tmp_path / "there", copy_function=shutil.copyfile), "", 1) == "1 1\n"
