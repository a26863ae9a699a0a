"""Errors that a user can fix."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class UsageError(Exception):
    """A command line, file or folder that the user gave is not usable. The message says what to do."""


class WarehouseUnusable(UsageError):
    """Tables cannot be written to a folder or catalog. The message says what to give instead."""


class WarehouseBusy(Exception):
    """Another run is writing to this warehouse."""


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint at the known name that is most like an unknown one: ``; did you mean …?``, or an empty text.

    Raises TypeError if the unknown one is no text, as from a Python prompt.
    """
    if not isinstance(name, str):
        raise TypeError(f"a name is a text, not {type(name).__name__}")
    same = [other for other in known if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
