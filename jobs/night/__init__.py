"""One night of one broker: turns what is new in its log and subscriptions into rows of all tables."""

from enum import Enum


class Step(Enum):
    """A step of a night; each has a job of its own, and nightly runs all."""

    INGEST = "ingest"
    REGISTER = "register"
    DISPATCH = "dispatch"
    DELIVER = "deliver"


ALL_STEPS = frozenset(Step)
