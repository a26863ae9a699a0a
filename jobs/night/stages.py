"""The steps of a night."""

from enum import Enum


class Stage(Enum):
    """A step of a night."""

    INGEST = "ingest"
    REGISTER = "register"
    DISPATCH = "dispatch"
    DELIVER = "deliver"


ALL_STAGES = frozenset(Stage)
