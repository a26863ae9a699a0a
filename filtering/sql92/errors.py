"""What can go wrong with an SQL92 expression: when it is compiled, and when it is evaluated."""

from __future__ import annotations

_SHOWN_BEFORE = 60
_SHOWN_AFTER = 20


class InvalidExpression(ValueError):
    """The broker refuses the expression when it is subscribed.

    ``problem`` is one sentence, ``position`` the offset in characters where it shows.
    """

    def __init__(self, problem: str, expression: str, position: int) -> None:
        super().__init__(f"{problem}\n{pointed_at(expression, position)}")
        self.problem = problem
        self.expression = expression
        self.position = position

    def __reduce__(self) -> tuple[type[InvalidExpression], tuple[str, str, int]]:
        return type(self), (self.problem, self.expression, self.position)


class EvaluationError(Exception):
    """The broker's evaluation of the whole expression fails on a message, which is then not delivered."""


def pointed_at(expression: str, position: int) -> str:
    """The part of the expression around ``position`` on one line, and a caret below it."""
    first = max(0, position - _SHOWN_BEFORE)
    shown = expression[first : position + _SHOWN_AFTER]
    line = "".join(character if character.isprintable() else " " for character in shown)
    return f"  {line}\n  {' ' * (position - first)}^"
