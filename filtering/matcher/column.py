"""The values of one property in a batch of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.frozen import frozen

Array = npt.NDArray[Any]


@frozen(eq=False)
class Column:
    """Message i has ``texts[positions[i]]`` (int32), or ``texts[i]`` if ``positions`` is None.

    The property is missing if the position is -1 or the text is null.
    """

    texts: pa.StringArray
    positions: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.texts) if self.positions is None else len(self.positions)

    def without(self, missing: Array) -> Column:
        """The same column, but the property is missing where ``missing`` is true. The column must have positions."""
        assert self.positions is not None
        return Column(self.texts, np.where(missing, np.int32(-1), self.positions))

    @property
    def asked(self) -> Column:
        """The texts that :meth:`answer` asks about: each once, if there are fewer texts than messages."""
        return self if self.positions is None or len(self.texts) > len(self.positions) else Column(self.texts)

    def answer(self, ask: Callable[[Column], Array], missing: int) -> Array:
        """One answer for each message: ``ask`` gives those of ``asked``; without the property it is ``missing``."""
        return self.spread(ask(self.asked), missing)

    def spread(self, answers: Array, missing: int) -> Array:
        """The answers about ``asked``, for each message."""
        return answers if self.asked is self else np.append(answers, np.array(missing))[self.positions]

    def text_of_each(self) -> pa.StringArray:
        """One text for each message; null if the property is missing."""
        if self.positions is None:
            return self.texts
        return self.texts.take(pa.array(self.positions, mask=self.positions < 0))
