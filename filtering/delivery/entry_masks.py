"""Which entries of a block each of many masks selects."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from filtering.delivery import bit_planes
from filtering.delivery.bit_planes import Words
from filtering.delivery.window_loops import EVERYTHING, NOTHING


class EntryMasks:
    """Packed bits for each of many numbers, which mostly share a row: ``rows[row_of[number]]``."""

    def __init__(self, numbers: int, everything: npt.NDArray[np.bool_]) -> None:
        self.row_of = np.full(numbers, EVERYTHING, np.int32)
        self._rows = [bit_planes.pack(everything), bit_planes.pack(np.zeros(len(everything), bool))]

    def add(self, number: int) -> Words:
        """A row of its own for a number, all zeros."""
        self.row_of[number] = len(self._rows)
        self._rows.append(np.zeros_like(self._rows[NOTHING]))
        return self._rows[-1]

    @property
    def rows(self) -> Words:
        return np.stack(self._rows)
