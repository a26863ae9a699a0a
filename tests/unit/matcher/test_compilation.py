"""The cache of compiled loops on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from filtering.kernels import compile, dispatcher

ROOT = Path(__file__).resolve().parents[3]


def test_a_folder_that_nobody_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba finds no place for its cache if the project and the home of the user are read-only."""
    for place in dispatcher.PLACES:
        monkeypatch.setattr(place, "from_function", lambda *_: None)

    def twice(number: int) -> int:
        return 2 * number

    assert compile.compiled(twice)(21) == 42


def write_modules(folder: Path, package: str) -> None:
    """A compiled function that calls one of another module, which has a constant of a third one."""
    header = "from filtering.kernels.compile import compiled\n"
    (folder / "outer.py").write_text(
        header + f"from {package}middle import middle\n@compiled\ndef outer():\n return middle()\n"
    )
    (folder / "middle.py").write_text(
        header + f"from {package}inner import (\n ONE,\n)\n@compiled\ndef middle():\n return ONE\n"
    )


# Each answer is one of a process of its own, with what takes longest done before it begins.
PROCESSES = """
import importlib, numba, os, sys
import filtering.kernels.dispatcher
numba.njit(lambda: 1)()
for line in sys.stdin:
    if os.fork() == 0:
        folder, module = line.split()
        sys.path.insert(0, folder)
        outer = importlib.import_module(module).outer
        print(outer(), len(outer.stats.cache_hits), flush=True)
        os._exit(0)
    if os.wait()[1] != 0:
        sys.exit(1)
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", PROCESSES], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        yield started


def answer(processes: subprocess.Popen[str], folder: Path, package: str, one: int) -> str:
    """What the function returns if the constant is ``one``, and how many functions were loaded from the cache."""
    (folder / package.replace(".", "/") / "inner.py").write_text(f"ONE = {one}\n")
    assert processes.stdin is not None
    assert processes.stdout is not None
    print(folder, f"{package}outer", file=processes.stdin, flush=True)
    return processes.stdout.readline()


def test_code_compiled_with_an_older_version_of_another_module_is_not_used(
    processes: subprocess.Popen[str], tmp_path: Path
) -> None:
    """An update may change only the module of a function that is compiled into the functions of other modules.

    A copy of the code brings what was compiled, as to the workers of a cluster, which would compile for most of a
    minute.
    """
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    write_modules(here, "")
    assert answer(processes, here, "", 1) == "1 0\n"
    shutil.copytree(here, there, copy_function=shutil.copyfile)
    assert answer(processes, there, "", 1) == "1 1\n"
    assert answer(processes, here, "", 2) == "2 0\n"


def test_a_package_that_is_a_link_to_a_folder_of_another_name(processes: subprocess.Popen[str], tmp_path: Path) -> None:
    """As on the workers of YARN."""
    unpacked, folder = tmp_path / "unpacked" / "box.zip", tmp_path / "work"
    unpacked.mkdir(parents=True)
    folder.mkdir()
    (folder / "box").symlink_to(unpacked)
    write_modules(unpacked, "box.")
    assert [answer(processes, folder, "box.", one) for one in (1, 1, 2)] == ["1 0\n", "1 1\n", "2 0\n"]
