"""Compiles the loops of mqsieve for this processor, so that no command waits for it. spark-submit.sh runs it once.

``loops.txt`` has a line for each way in which Python calls a loop: the loop, and Numba's types of its arguments. Tests
fail if a line is missing (tests/conftest.py).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from numba import types

LOOPS = Path(__file__).parent / "loops.txt"


def compile_loops(lines: list[str]) -> None:
    """Compiles the loops of the lines, and what they call, into Numba's cache."""
    for line in lines:
        loop, _, arguments = line.partition(" ")
        name, _, function = loop.rpartition(".")
        module = import_module(name)
        names: dict[str, Any] = {**vars(module), **vars(types), "bool": types.boolean}
        getattr(module, function).compile(eval(arguments, names))  # noqa: S307  # the project's own file


if __name__ == "__main__":
    sys.path.insert(0, str(LOOPS.parents[1]))
    compile_loops(LOOPS.read_text().splitlines())
