"""The outcomes of evaluating an expression on a message, except NULL."""

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
        """The outcome of x if this is the outcome of NOT x."""
        return _NEGATED[self]


_NEGATED = {Outcome.TRUE: Outcome.FALSE, Outcome.FALSE: Outcome.TRUE, Outcome.ERROR: Outcome.ERROR}

Lower: TypeAlias = Callable[[Node, Outcome], Steps[Predicate]]
"""Computes the predicate that is true if a node has an outcome."""
