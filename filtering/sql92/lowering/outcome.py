"""What the broker's evaluation of an expression on a message comes to, besides NULL."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import TypeAlias

from sqlglot import exp

from filtering.predicate import Predicate


class Outcome(Enum):
    TRUE = auto()
    FALSE = auto()
    ERROR = auto()

    @property
    def negated(self) -> Outcome:
        """The outcome of x where NOT x comes to this."""
        return _NEGATED[self]


_NEGATED = {Outcome.TRUE: Outcome.FALSE, Outcome.FALSE: Outcome.TRUE, Outcome.ERROR: Outcome.ERROR}

Lowered: TypeAlias = Generator[tuple[exp.Expr, Outcome], Predicate, Predicate]
"""Where a node comes to an outcome, while it is found out: yields the nodes and outcomes of which it must know that."""
