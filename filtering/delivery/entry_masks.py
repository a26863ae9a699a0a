"""Masks over the entries of a block. Masks that select all entries, or none, share a row of bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from filtering.delivery.window_loops import EVERYTHING
from filtering.matcher import packed_bits
from filtering.matcher.packed_bits import Words


class EntryMasks:
    """Masks by number. Mask ``number`` has the packed bits ``rows[row_of[number]]``."""

    def __init__(self, numbers: int, everything: npt.NDArray[np.bool_]) -> None:
        self.row_of = np.full(numbers, EVERYTHING, np.int32)
        of_all = packed_bits.pack(everything)
        # Room for all: the system gives memory to rows only when they are written.
        self._room = np.zeros((numbers + 2, len(of_all)), np.uint64)
        self._room[EVERYTHING] = of_all
        self._used = 2

    def add(self, number: int) -> Words:
        """Gives mask ``number`` its own row. Returns the row, all zeros."""
        self.row_of[number] = self._used
        self._used += 1
        row: Words = self._room[self._used - 1]
        return row

    @property
    def rows(self) -> Words:
        """The rows: that of all entries, that of none, and those that were added."""
        rows: Words = self._room[: self._used]
        return rows
