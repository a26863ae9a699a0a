"""What the broker's evaluation of an expression on a message comes to, besides NULL."""

from __future__ import annotations

from enum import Enum, auto


class Outcome(Enum):
    TRUE = auto()
    FALSE = auto()
    ERROR = auto()

    @property
    def negated(self) -> Outcome:
        """The outcome of x where NOT x comes to this."""
        return _NEGATED[self]


_NEGATED = {Outcome.TRUE: Outcome.FALSE, Outcome.FALSE: Outcome.TRUE, Outcome.ERROR: Outcome.ERROR}
