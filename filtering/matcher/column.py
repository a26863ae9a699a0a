"""One property of a batch of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Column:
    """Message i has ``texts[positions[i]]``, or ``texts[i]`` where there are no positions (int32).

    It lacks the property where the position is -1 or the text null.
    """

    texts: pa.StringArray
    positions: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.texts) if self.positions is None else len(self.positions)

    def answer(self, ask: Callable[[Column], Array], missing: int) -> Array:
        """``ask`` gives one answer a message; it is asked about each text just once where that is less."""
        if self.positions is None or len(self.texts) > len(self.positions):
            return ask(self)
        return np.append(ask(Column(self.texts)), np.array(missing))[self.positions]

    def text_of_each(self) -> pa.StringArray:
        """One text a message, null where it lacks the property."""
        if self.positions is None:
            return self.texts
        return self.texts.take(pa.array(self.positions, mask=self.positions < 0))
