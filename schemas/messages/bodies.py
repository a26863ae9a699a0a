"""Which bodies of messages are kept."""

from enum import Enum


class Bodies(Enum):
    """Which bodies are kept."""

    KEEP = "keep"
    DAMAGED = "damaged"
    NONE = "none"
