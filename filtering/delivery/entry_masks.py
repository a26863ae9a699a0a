"""Masks over the entries of a block. Masks that select all entries, or none, share a row of bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from filtering.delivery.window_loops import EVERYTHING, NOTHING
from filtering.matcher import packed_bits
from filtering.matcher.packed_bits import Words


class EntryMasks:
    """Masks by number. Mask ``number`` has the packed bits ``rows[row_of[number]]``."""

    def __init__(self, numbers: int, everything: npt.NDArray[np.bool_]) -> None:
        self.row_of = np.full(numbers, EVERYTHING, np.int32)
        self._rows = [packed_bits.pack(everything), packed_bits.pack(np.zeros(len(everything), bool))]

    def add(self, number: int) -> Words:
        """Give mask ``number`` its own row. Returns the row, all zeros."""
        self.row_of[number] = len(self._rows)
        self._rows.append(np.zeros_like(self._rows[NOTHING]))
        return self._rows[-1]

    @property
    def rows(self) -> Words:
        return np.stack(self._rows)
