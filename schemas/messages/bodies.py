"""The choice of message bodies that commitlog keeps. Command lines import it: nothing slow to import is beside it."""

from enum import Enum


class Bodies(Enum):
    """The message bodies that commitlog keeps."""

    KEEP = "keep"
    DAMAGED = "damaged"
    NONE = "none"
