"""Builds the package. In the repository ``filtering``, ``schemas``, ``answers`` and ``jobs`` are top-level packages; in
a wheel or a source distribution they are packages of ``mqsieve``, beside any ``schemas`` or ``jobs`` of a user.

Both are built by setuptools from a copy, in which the packages are moved, and every import of them is rewritten. A copy
built so is an ordinary project. ``pip install --editable`` makes no copy: it is the repository as it is.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import build_editable, get_requires_for_build_editable, prepare_metadata_for_build_editable

__all__ = [
    "build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
    "prepare_metadata_for_build_editable",
]  # fmt: skip

ROOMS = ("filtering", "schemas", "answers", "jobs")
_MOVED = re.compile(rf"(?m)(^ *|= |: )((?:{'|'.join(ROOMS)}|conf)(?:[.*]| =|$))")
_BUILD_SYSTEM = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'


def build_wheel(folder: str, config_settings: dict[str, object] | None = None, _: str | None = None) -> str:
    return _build(build_meta.build_wheel, folder, config_settings)


def build_sdist(folder: str, config_settings: dict[str, object] | None = None) -> str:
    return _build(build_meta.build_sdist, folder, config_settings)


def _build(build: Callable[..., str], folder: str, config_settings: dict[str, object] | None) -> str:
    wanted = str(Path(folder).absolute())
    with _moved_copy(Path.cwd()) as copy, chdir(copy):
        return build(wanted, config_settings)


@contextmanager
def _moved_copy(repository: Path) -> Iterator[Path]:
    """A copy of the repository in which all packages are below ``mqsieve``."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        package = copy / "mqsieve"
        of_no_use = shutil.ignore_patterns(
            "__pycache__", "requirements*", "lock.sh", "*completion*", Path(__file__).name
        )
        shutil.copytree(repository / "mqsieve", package, ignore=of_no_use)
        for name in (*ROOMS, "conf"):
            shutil.copytree(repository / name, package / name, ignore=of_no_use)
        shutil.copy(repository / "spark-submit.sh", package)
        for name in ("README.md", "CHANGELOG.md", "LICENSE", "NOTICE"):
            shutil.copy(repository / name, copy)
        for module in package.rglob("*.py"):
            module.write_text(below_mqsieve(module.read_text("utf-8")), "utf-8")
        metadata = (repository / "setup.cfg").read_text("utf-8").partition("[tool:")[0]
        (copy / "setup.cfg").write_text(_MOVED.sub(r"\1mqsieve.\2", metadata), "utf-8")
        (copy / "pyproject.toml").write_text(_BUILD_SYSTEM, "utf-8")
        yield copy


def below_mqsieve(source: str) -> str:
    """A module whose imports of the repository's packages are those of ``mqsieve``'s. Its lines stay where they are."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in ROOMS for alias in node.names):
            raise ValueError(f"line {node.lineno} imports a package by its whole name: write from … import …")
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in ROOMS:
            line = lines[node.lineno - 1]
            at = line.index("from ", node.col_offset)  # only spaces are before it
            lines[node.lineno - 1] = f"{line[:at]}from mqsieve.{line[at + len('from ') :]}"
    return "\n".join(lines)
