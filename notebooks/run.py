"""Runs the notebooks and stores what they show: .venv/bin/python notebooks/run.py [NAME ...]

A cell shows what it prints and the value of its last line, as in Jupyter. No Jupyter is needed.
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
Output = dict[str, Any]


def code_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells that are run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs_of(path: Path) -> list[list[Output]]:
    """What each code cell of a notebook shows, in the form that notebooks store. A failing cell raises its error."""
    notebook = json.loads(path.read_text("utf-8"))
    variables: dict[str, Any] = {"__name__": "__main__"}
    with _in_folder():
        return [_run("".join(cell["source"]), path.name, variables) for cell in code_cells(notebook)]


def store(path: Path) -> None:
    """Runs a notebook and writes its outputs into it."""
    shown = outputs_of(path)
    notebook = json.loads(path.read_text("utf-8"))
    for cell, outputs in zip(code_cells(notebook), shown, strict=True):
        cell["outputs"], cell["execution_count"] = outputs, None
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", "utf-8")


@contextmanager
def _in_folder() -> Iterator[None]:
    """Jupyter runs a notebook in its folder, and imports from there."""
    before = os.getcwd()
    os.chdir(FOLDER)
    sys.path.insert(0, str(FOLDER))
    try:
        yield
    finally:
        sys.path.remove(str(FOLDER))
        os.chdir(before)


def _run(source: str, name: str, variables: dict[str, Any]) -> list[Output]:
    statements = ast.parse(source, name).body
    last = statements.pop() if statements and isinstance(statements[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), name, "exec"), variables)  # noqa: S102 a notebook is code
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), variables)  # noqa: S307
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        shown = {"data": _data(value), "execution_count": None, "metadata": {}, "output_type": "execute_result"}
        outputs.append(shown)
    return outputs


def _data(value: Any) -> dict[str, list[str]]:
    """HTML where the value has some, else its text."""
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    return {"text/plain": _lines(repr(value))} if html is None else {"text/html": _lines(html)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for chosen in NOTEBOOKS:
        if not sys.argv[1:] or chosen.stem in sys.argv[1:]:
            print(chosen.name)
            store(chosen)
