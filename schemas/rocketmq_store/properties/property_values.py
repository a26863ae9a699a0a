"""The values of one property as an Arrow column, chunk by chunk: a dictionary while there are few distinct values."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java.strings import is_utf8, unchecked_string_array
from schemas.rocketmq_store.commitlog.segments import SLACK
from schemas.rocketmq_store.gather import Bytes
from schemas.rocketmq_store.properties.interning import Interner
from schemas.rocketmq_store.properties.property_slots import copy_values

MOST_VALUES = 4095
"""More distinct values are copied: their numbers would save little."""
Texts: TypeAlias = pa.StringArray | pa.DictionaryArray


class PropertyValues:
    """Reads the values of one property from the chunks of a log."""

    def __init__(self) -> None:
        self._interner: Interner | None = Interner(MOST_VALUES)
        self._texts = pa.array([], pa.string())

    def read(self, log: Bytes, starts: NDArray[np.int32], lengths: NDArray[np.int32]) -> Texts | None:
        """The value at each position of ``log``, null where its length is 0. None if some value is not UTF-8."""
        missing = lengths == 0
        if self._interner is not None:
            numbers = self._interner.numbers(log, starts, lengths)
            if numbers is not None and self._texts_are_utf8(self._interner):
                mask = missing if missing.any() else None
                return pa.DictionaryArray.from_arrays(numbers, self._texts, mask, safe=False)
            self._interner = None
        size = int(lengths.sum())
        offsets = np.zeros(len(lengths) + 1, np.int32)
        data = np.empty(size + SLACK, np.uint8)
        copy_values(log, starts, lengths, offsets, data)
        if not is_utf8(offsets, data[:size]):
            return None
        return unchecked_string_array(offsets, data[:size], missing)

    def _texts_are_utf8(self, interner: Interner) -> bool:
        if interner.count > len(self._texts):
            offsets, data = interner.texts()
            if not is_utf8(offsets, data):
                return False
            self._texts = unchecked_string_array(offsets, data)
        return True
