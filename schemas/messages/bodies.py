"""The choice of message bodies that commitlog keeps."""

from enum import Enum


class Bodies(Enum):
    """The message bodies that commitlog keeps."""

    KEEP = "keep"
    DAMAGED = "damaged"
    NONE = "none"
