"""The outcomes of evaluating an expression on a message, except NULL."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from filtering.predicate import Predicate
from filtering.sql92.syntax.nodes import Node
from filtering.sql92.syntax.walk import Steps


class EvaluationOutcome(Enum):
    """What the evaluation of an expression gives. NULL is left out: it is the outcome if none of these is."""

    __hash__ = object.__hash__

    TRUE = "TRUE"
    FALSE = "FALSE"
    ERROR = "ERROR"

    @property
    def negated(self) -> EvaluationOutcome:
        """The outcome of x if this is the outcome of NOT x."""
        return _NEGATED[self]


_NEGATED = {
    EvaluationOutcome.TRUE: EvaluationOutcome.FALSE,
    EvaluationOutcome.FALSE: EvaluationOutcome.TRUE,
    EvaluationOutcome.ERROR: EvaluationOutcome.ERROR,
}

Lower: TypeAlias = Callable[[Node, EvaluationOutcome], Steps[Predicate]]
"""Computes the predicate that is true if a node has an outcome."""
