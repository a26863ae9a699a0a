"""Shows whether tests would see a slip: makes random mutants of modules, and runs the tests that call what changed.

    python -m tests.mutants --folder /tmp/mutants [--count 300] [--seed 1] [--nights] [MODULE …]

A mutant has one change: a flipped comparison, a number one greater, ``and`` instead of ``or``, a condition that is
negated, or a statement left out. First all tests run once in a copy of the repository: which functions does each call?
Then the tests that call a mutant's function run, until one fails; those first that call the fewest others. Where no
test calls it (statements of modules, and loops that Numba compiles), the tests run that call a function of the module,
or of one that imports it. Prints each mutant, and the share that was caught. With the same folder and seed, a run goes
on where it ended. With ``--nights``, first record tests/nights, too, which takes some minutes; what survived without
them runs again.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import os
import pickle
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from pathlib import Path

import numba  # noqa: F401  # loaded once, before the process of each mutant begins
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pytest
import sqlglot.optimizer  # noqa: F401
import yaml  # noqa: F401

ROOT = Path(__file__).parents[1]
MUTATED = ("filtering", "jobs/night")
SETS_UP = ("tests/unit/test_spark_submit.py", "tests/unit/test_application.py")
"""Tests that run spark-submit.sh, which would install its packages in the copy."""
ROOMS = ("filtering", "schemas", "answers", "jobs")
FIRST, SLOW, SECONDS, ALARM = 30, 5, 40, 400
"""Of the tests that call a function, so many run first; slow ones (s) are the last of at most so many seconds (as
recorded). A mutant that hangs is ended after ALARM (s), and counts as caught."""
SURVIVED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
Function = tuple[str, int]
"""A function's file, and its line."""
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


def functions(tree: ast.Module) -> dict[int, int]:
    """By node (its id), the line of the innermost function that it is in."""
    lines: dict[int, int] = {}
    for each in ast.walk(tree):  # outer functions come first
        if isinstance(each, ast.FunctionDef):
            lines |= {id(part): each.lineno for statement in each.body for part in ast.walk(statement)}
    return lines


NOTE = ast.parse("import builtins\n_note = getattr(builtins, '_note', id)").body
"""``_note`` is what :class:`Calls` adds each called function with, in its own process."""


def with_notes(tree: ast.Module, part: Path) -> str:
    """The text of a module in which each function notes its call, but for loops that Numba compiles."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "compiled" not in map(ast.unparse, node.decorator_list):
            note = ast.parse(f"_note(({str(part)!r}, {node.lineno}))").body
            node.body[ast.get_docstring(node) is not None : 0] = note
    first = next((at for at, node in enumerate(tree.body) if not isinstance(node, ast.Expr | ast.ImportFrom)), 0)
    tree.body[first:first] = NOTE
    return ast.unparse(ast.fix_missing_locations(tree))


class Calls:
    """A plugin of pytest that records which functions each test calls, itself or in its fixtures, and its seconds."""

    def __init__(self) -> None:
        self.calls: dict[str, set[Function]] = {}
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._fixtures: dict[object, set[Function]] = {}
        self._called: set[Function] = set()

    @contextmanager
    def _recorded(self, calls: set[Function]) -> Iterator[None]:
        before = set(self._called)
        self._called.clear()
        yield
        calls |= self._called
        self._called.clear()
        self._called |= before

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:  # which import modules
        vars(builtins)["_note"] = self._called.add

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        begin, calls = time.perf_counter(), self.calls.setdefault(item.nodeid, set())
        with self._recorded(calls):
            result = yield
        self.seconds[item.nodeid] = time.perf_counter() - begin
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            calls |= self._fixtures.get(fixtures[-1], set())
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: object) -> Iterator[None]:
        with self._recorded(self._fixtures.setdefault(fixturedef, set())):
            return (yield)

    def sound(self) -> tuple[dict[str, set[Function]], dict[str, float]]:
        """What the tests that passed call, and their seconds."""
        return {test: calls for test, calls in self.calls.items() if test not in self.failed}, self.seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


class Only:
    """A plugin of pytest that runs these tests only, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )


def run_tests(folder: Path, tests: list[str]) -> int:
    """Runs tests until one fails. Returns pytest's exit code, or minus the signal that ended it."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    return pytest_in(folder, Only(tests), ["-x", *files], ALARM)


def pytest_in(
    folder: Path, plugin: object, arguments: list[str], seconds: int, at_end: Callable[[], object] = int
) -> int:
    """Runs tests in a process that has not loaded the repository, with its output in a file beside the folder."""
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.modules.pop("tests", None)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        output = os.open(folder.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2)
        signal.alarm(seconds)
        code = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *arguments], plugins=[plugin])
        at_end()
        os._exit(int(code))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def recorded(folder: Path, room: str) -> tuple[dict[str, set[Function]], dict[str, float]]:
    """By test that passes without a mutant, what it calls, and its seconds: of one run, which is stored."""
    file = folder / f"{room}.calls"
    if not file.exists():
        calls = Calls()
        ignored = [f"--ignore={test}" for test in SETS_UP]
        pytest_in(
            folder / "copy",
            calls,
            [f"tests/{room}", *ignored],
            7_200,
            lambda: file.write_bytes(pickle.dumps(calls.sound())),
        )
    result: tuple[dict[str, set[Function]], dict[str, float]] = pickle.loads(file.read_bytes())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "modules", nargs="*", type=Path, help="modules to change; default: all of filtering, jobs/night"
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the copy is, and what is known of it")
    parser.add_argument("--count", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nights", action="store_true", help="tests/nights, too")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    copy, changed, results = folder / "copy", folder / "changed", folder / f"results-{given.seed}.txt"
    if not copy.exists():
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "*.parquet"))
        for path in (path for room in MUTATED for path in (copy / room).rglob("*.py")):
            path.write_text(with_notes(ast.parse(path.read_text("utf-8")), path.relative_to(copy)), "utf-8")
    calls, seconds = recorded(folder, "unit")
    if given.nights:
        of_nights, seconds_of_nights = recorded(folder, "nights")
        calls, seconds = calls | of_nights, seconds | seconds_of_nights
    if run_tests(copy, list(calls)[:FIRST]):
        sys.exit(f"tests fail without a mutant: {folder / 'output.txt'}")
    product = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    modules = [path.resolve() for path in given.modules] or [
        path for path in product if str(path.relative_to(ROOT)).startswith(MUTATED)
    ]
    modules = [path for path in modules if any(sites(ast.parse(path.read_text("utf-8"))))]
    rng, weights = random.Random(given.seed), [path.stat().st_size for path in modules]
    done = results.read_text("utf-8").splitlines() if results.exists() else []
    for number in range(given.count):
        [path] = rng.choices(modules, weights)
        part = path.relative_to(ROOT)
        tree = ast.parse(path.read_text("utf-8"))
        places = list(sites(tree))
        node, kind = places[rng.randrange(len(places))]
        text = f"{part}:{node.lineno} {kind}: {ast.unparse(node).splitlines()[0]}"  # type: ignore[attr-defined]
        function = (str(part), functions(tree).get(id(node), 0))
        near = {str(user.relative_to(ROOT)) for user in product if user == path or path in imports(user)}
        callers = [test for test, called in calls.items() if function in called] or [
            test for test, called in calls.items() if any(file in near for file, _ in called)
        ]
        callers.sort(key=lambda test: (seconds[test] > SLOW, len(calls[test])))
        totals = accumulate(seconds[test] for test in callers)
        tests = [test for test, total in zip(callers, totals, strict=True) if total < SECONDS]
        if number < len(done) and (done[number].split()[1] == "caught" or f"[{len(tests)} tests, " in done[number]):
            continue
        shutil.rmtree(changed, ignore_errors=True)
        shutil.copytree(copy, changed, copy_function=os.link)  # with caches of Numba and Python, which replace files
        (changed / part).unlink()
        (changed / part).write_text(ast.unparse(ast.fix_missing_locations(Change(node).visit(tree))), "utf-8")
        code = run_tests(changed, tests[:FIRST])
        if code in SURVIVED and tests[FIRST:]:
            code = run_tests(changed, tests[FIRST:])
        result = "survived" if code in SURVIVED else "caught"
        done[number : number + 1] = [f"{number + 1} {result} {text} [{len(tests)} tests, exit {code}]"]
        print(done[number], flush=True)
        results.write_text("\n".join(done) + "\n", "utf-8")
    print(f"{sum(line.split()[1] == 'caught' for line in done)} of {len(done)} caught")


if __name__ == "__main__":
    main()
