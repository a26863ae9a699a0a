"""Measures how much there is to read: product modules, their lines, and how many a job imports.

    python -m tests.size [JOB …]        (default: nightly)

The closure of a job is all product modules that it imports, directly or not, also inside functions and for types only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.mutants import ROOT, imports

ROOMS = ("filtering", "schemas", "answers", "jobs", "mqsieve")


def product_modules(root: Path = ROOT) -> list[Path]:
    """The modules that a wheel contains."""
    return sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))


def closure(job: Path) -> set[Path]:
    """``job`` and the product modules that it imports, with the packages that they are in."""
    imported = [job]
    for module in imported:
        imported += imports(module) - {*imported}
    modules = {path for path in imported if path.relative_to(ROOT).parts[0] in ROOMS}
    packages = {folder / "__init__.py" for path in modules for folder in path.parents}
    return modules | {path for path in packages if path.exists() and path != ROOT / "__init__.py"}


def has_statements(path: Path) -> bool:
    """Whether a module has more than a docstring."""
    body = ast.parse(path.read_text("utf-8")).body
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in body)


def lines(paths: Iterable[Path]) -> int:
    """Lines, with blank ones and comments."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def main(jobs: list[str]) -> None:
    modules = product_modules()
    for room in ROOMS:
        own = [path for path in modules if path.relative_to(ROOT).parts[0] == room]
        print(f"{room:<24}{len(own):>6} modules {lines(own):>8,} lines")
    print(f"{'product':<24}{len(modules):>6} modules {lines(modules):>8,} lines")
    empty = [path for path in modules if not has_statements(path)]
    print(f"{'only a docstring':<24}{len(empty):>6} modules")
    for job in jobs:
        closure_modules = closure(ROOT / "jobs" / f"{job}.py")
        print(f"{f'closure of {job}':<24}{len(closure_modules):>6} modules {lines(closure_modules):>8,} lines")


if __name__ == "__main__":
    main(sys.argv[1:] or ["nightly"])
