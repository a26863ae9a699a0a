"""Errors of SQL92 expressions, at compilation and at evaluation."""

from __future__ import annotations

_SHOWN_BEFORE = 60
_SHOWN_AFTER = 20


class InvalidExpression(ValueError):
    """The broker refuses the expression. ``problem`` says why, ``position`` is the offset in characters."""

    def __init__(self, problem: str, expression: str, position: int) -> None:
        super().__init__(f"{problem}\n{pointed_at(expression, position)}")
        self.problem = problem
        self.expression = expression
        self.position = position

    def __reduce__(self) -> tuple[type[InvalidExpression], tuple[str, str, int]]:
        return type(self), (self.problem, self.expression, self.position)


class EvaluationError(Exception):
    """The broker's evaluation of the expression fails on a message. The broker does not deliver that message."""


def pointed_at(expression: str, position: int) -> str:
    """The part of the expression around ``position`` on one line, and a caret below that position."""
    first = max(0, position - _SHOWN_BEFORE)
    shown = expression[first : position + _SHOWN_AFTER]
    line = "".join(character if character.isprintable() else " " for character in shown)
    return f"  {line}\n  {' ' * (position - first)}^"


def on_one_line(compile_error: str) -> str:
    """The text of an error on one line: the expression from the caret on stands for the caret."""
    problem, *shown = compile_error.split("\n")
    if len(shown) != 2:
        return " ".join(compile_error.split())
    expression, caret = shown
    rest = expression[len(caret) - 1 :]
    more = "…" if len(rest) == _SHOWN_AFTER else ""
    return f"{problem} Place: {rest.strip()}{more}" if rest.strip() else problem
