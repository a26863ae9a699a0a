"""Prints docs/API.md: ./spark-submit.sh python docs/make_api.py > docs/API.md"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

from answers.warehouse import Results, Rows

HEAD = """# Python

Generated from docstrings by `docs/make_api.py`. In the repository, `./spark-submit.sh python` runs it; a package gives
`import mqsieve` anywhere.
"""
ANSWERS = """## What answers are

`lag`, `findings`, `summary` and others are Results, `deliveries`, `messages`, `entries` and `subscriptions` are Rows.
"""
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


def page() -> str:
    """The page as Markdown."""
    answers = [part for answer in (Results, Rows) for part in _entry(answer.__name__, answer, 3)]
    return "\n".join([HEAD, *_module("mqsieve"), *_module("mqsieve.spark"), ANSWERS, *answers])


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    yield f"## {name}\n\n{_text(module)}\n"
    for public in sorted(module.__all__, key=str.lower):
        yield from _entry(public, getattr(module, public), 3)


def _entry(name: str, described: Any, level: int) -> Iterator[str]:
    signature = "" if isinstance(described, property | cached_property) else _signature(described)
    yield f"{'#' * level} {name}{signature}\n\n{_text(described)}\n"
    if inspect.isclass(described):
        for member, value in vars(described).items():
            if not member.startswith("_") and _is_documented(value):
                yield from _entry(f"{name}.{member}", value, level + 1)


def _is_documented(value: Any) -> bool:
    is_member = inspect.isfunction(value) or isinstance(value, property | cached_property | classmethod)
    return is_member and bool(inspect.getdoc(value))


def _signature(described: Callable[..., object]) -> str:
    if inspect.isclass(described):
        return ""
    names = [
        f"{'*' if parameter.kind is parameter.VAR_POSITIONAL else ''}{parameter.name}"
        for parameter in inspect.signature(described).parameters.values()
        if parameter.name != "self"
    ]
    return f"({', '.join(names)})"


def _text(described: object) -> str:
    """The docstring as Markdown: code that is indented there is fenced here."""
    text = _ROLE.sub(r"`\1`", inspect.getdoc(described) or "").replace("``", "`")
    return re.sub(r"(?:^    .*\n?|\n(?=    ))+", _fenced, text, flags=re.MULTILINE)


def _fenced(code: re.Match[str]) -> str:
    lines = [line.removeprefix("    ") for line in code[0].strip("\n").split("\n")]
    return "\n".join(["", "```python", *lines, "```", ""])


if __name__ == "__main__":
    print(page(), end="")
