"""The source files of a module and of all that it imports of this project, and their digest.

What was computed from inputs that did not change is out of date if one of these files did.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_IMPORT = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)


def digest(files: Iterable[Path]) -> bytes:
    """A digest of the content of some files."""
    return hashlib.sha256(b"".join(_digest(file) for file in files)).digest()


def with_imports(file: Path, root: Path) -> list[Path]:
    """``file``, and all files below ``root`` that it imports, directly or not, also where it is used only."""
    files, waiting = {file}, [file]
    while waiting:
        new = set(_imported(waiting.pop(), root)) - files
        files |= new
        waiting += new
    return sorted(files)


@cache
def _imported(file: Path, root: Path) -> list[Path]:
    return list(_candidates(file.read_text("utf-8"), root))


def _candidates(source: str, root: Path) -> Iterator[Path]:
    for module, names in _IMPORT.findall(source):
        place = root.joinpath(*module.split("."))
        for path in (place.with_suffix(".py"), *(place / f"{name}.py" for name in re.findall(r"\w+", names))):
            if path.exists():
                yield path


@cache
def _digest(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()
