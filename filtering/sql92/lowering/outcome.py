"""What the broker's evaluation of an expression on a message comes to, besides NULL."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from filtering.predicate import Predicate
from filtering.sql92.syntax.nodes import Node
from filtering.sql92.syntax.walk import Steps


class Outcome(Enum):
    __hash__ = object.__hash__

    TRUE = "TRUE"
    FALSE = "FALSE"
    ERROR = "ERROR"

    @property
    def negated(self) -> Outcome:
        """The outcome of x where NOT x comes to this."""
        return _NEGATED[self]


_NEGATED = {Outcome.TRUE: Outcome.FALSE, Outcome.FALSE: Outcome.TRUE, Outcome.ERROR: Outcome.ERROR}

Lower: TypeAlias = Callable[[Node, Outcome], Steps[Predicate]]
"""Where a node comes to an outcome."""
