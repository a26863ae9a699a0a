"""Shows whether tests would see a slip: makes random mutants of modules, and runs the tests that import them.

    python -m tests.mutants [--count 300] [--seed 1] [--files 6] [--nights] [MODULE …]

A mutant has one change: a flipped comparison, a number one greater, ``and`` instead of ``or``, a condition that is
negated, or a statement left out. Each runs in a copy of the repository against the test files whose imports reach its
module, until one fails: those that are named as it or its folders first, then the nearest. Prints each survivor, and
the share that was caught.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numba  # noqa: F401  # loaded once, before the process of each mutant begins
import pyarrow.parquet  # noqa: F401
import pytest

ROOT = Path(__file__).parents[1]
MUTATED = ("filtering", "jobs/night")
SECONDS = 600
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@cache
def imports(path: Path) -> set[Path]:
    """The modules of this repository that a module imports anywhere."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        paths = [ROOT / name.replace(".", "/") for name in names]
        files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
        result |= {file for file in files if file.exists()}
    return result


def distances(test: Path) -> dict[Path, int]:
    """By module, how many imports away it is from a test file."""
    away, next_ones = {test: 0}, [test]
    for module in next_ones:
        for other in imports(module) - away.keys():
            away[other] = away[module] + 1
            next_ones.append(other)
    return away


def named_alike(test: Path, module: Path) -> int:
    """How many of a module's name and its folders' names are in the path of a test."""
    path = str(test.relative_to(ROOT / "tests"))
    return sum(name in path for name in module.relative_to(ROOT).with_suffix("").parts[1:])


def sites(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """The nodes that can be changed, and what the change is."""
    texts = [node for each in ast.walk(tree) for node in getattr(each, "decorator_list", ())]
    texts += [note for each in ast.walk(tree) if (note := getattr(each, "annotation", None)) is not None]
    left_out = {id(part) for node in texts for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
            yield node, "comparison"
        elif isinstance(node, ast.BoolOp):
            yield node, "and/or"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, "number"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node, "condition"
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield node, "statement"


class Change(ast.NodeTransformer):
    """Makes one change."""

    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def visit(self, node: ast.AST) -> ast.AST:
        if node is not self._node:
            return self.generic_visit(node)
        if isinstance(node, ast.Compare):
            node.ops[0] = FLIPPED[type(node.ops[0])]()
        elif isinstance(node, ast.BoolOp):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        else:
            return ast.copy_location(ast.Pass(), node)
        return node


def mutant(path: Path, rng: random.Random) -> tuple[str, str]:
    """A mutant of a module: its text, and what was changed."""
    tree = ast.parse(path.read_text("utf-8"))
    node, kind = rng.choice(list(sites(tree)))
    place = f"{path.relative_to(ROOT)}:{node.lineno} {kind}: {ast.unparse(node).splitlines()[0]}"  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(Change(node).visit(tree))), place


def fails(folder: Path, tests: list[str]) -> bool:
    """Whether a test fails, or takes longer than SECONDS, in a process that has not loaded the repository."""
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.modules.pop("tests", None)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        signal.alarm(SECONDS)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1), os.dup2(nothing, 2)
        code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])
        os._exit(int(code))
    return os.waitpid(child, 0)[1] != 0


def _passes(test: str, folder: Path, known: dict[str, bool]) -> bool:
    if test not in known:
        known[test] = not fails(folder, [test])
    return known[test]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "modules", nargs="*", type=Path, help="modules to change; default: all of filtering, jobs/night"
    )
    parser.add_argument("--count", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=6, help="test files for each mutant")
    parser.add_argument("--nights", action="store_true", help="tests/nights, too")
    given = parser.parse_args()
    rooms = ["unit", "nights"] if given.nights else ["unit"]
    tests = {path: distances(path) for room in rooms for path in sorted((ROOT / "tests" / room).rglob("test_*.py"))}
    modules = [path.resolve() for path in given.modules] or [
        path
        for room in MUTATED
        for path in sorted((ROOT / room).rglob("*.py"))
        if any(sites(ast.parse(path.read_text())))
    ]
    rng, caught, unseen = random.Random(given.seed), 0, 0
    is_sound: dict[str, bool] = {}
    """Whether a test file passes without a mutant; only such files count."""
    weights = [path.stat().st_size for path in modules]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "copy"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "*.parquet"))
        for number in range(given.count):
            [path] = rng.choices(modules, weights)
            text, place = mutant(path, rng)
            near = sorted(
                (-named_alike(test, path), away[path], str(test.relative_to(ROOT)))
                for test, away in tests.items()
                if path in away
            )
            near_tests: list[str] = []
            for *_, test in near:
                if len(near_tests) < given.files and _passes(test, folder, is_sound):
                    near_tests.append(test)
            original = (folder / path.relative_to(ROOT)).read_text("utf-8")
            (folder / path.relative_to(ROOT)).write_text(text, "utf-8")
            is_caught = bool(near_tests) and fails(folder, near_tests)
            (folder / path.relative_to(ROOT)).write_text(original, "utf-8")
            caught, unseen = caught + is_caught, unseen + (not near_tests)
            print(
                f"{number + 1} {'caught' if is_caught else 'survived' if near_tests else 'no test'} {place}", flush=True
            )
    print(f"{caught} of {given.count} caught, {unseen} in modules that no test file imports")


if __name__ == "__main__":
    main()
