"""Recursion over syntax trees of any depth, without Python's recursion limit."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

_Result = TypeVar("_Result")

Steps: TypeAlias = Generator[Any, Any, _Result]
"""A recursive computation: it yields each computation that it calls, receives its result, and returns its own."""


def run(steps: Steps[_Result]) -> _Result:
    stack: list[Steps[Any]] = [steps]
    result: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as returned:
            stack.pop()
            result = returned.value
    value: _Result = result
    return value
