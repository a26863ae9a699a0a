"""The stages of a night."""

from enum import Enum


class Stage(Enum):
    """A stage of a night; each has a job of its own, and nightly runs all."""

    INGEST = "ingest"
    REGISTER = "register"
    DISPATCH = "dispatch"
    DELIVER = "deliver"


ALL_STAGES = frozenset(Stage)
