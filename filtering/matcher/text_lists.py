"""Finds the texts of a column in many long lists at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels
from filtering.matcher.packed_bits import Words, words


@dataclass(frozen=True, eq=False)
class TextLists:
    """Lists of texts. ``index`` finds the number of each of the ``count`` distinct texts, or -1.

    ``lists_with``: for each list, the numbers of its texts as packed bits, shape (lists, words).
    """

    index: Any
    count: int
    lists_with: Words

    @classmethod
    def of(cls, lists: Sequence[frozenset[str]]) -> TextLists:
        number = {text: i for i, text in enumerate(sorted(frozenset().union(*lists)))}
        lists_with = np.zeros((len(lists), words(len(number))), np.uint64)
        for bits, texts in zip(lists_with, lists, strict=True):
            listed = np.array([number[text] for text in texts], np.uint64)
            np.bitwise_or.at(bits, listed >> np.uint64(6), np.uint64(1) << (listed & np.uint64(63)))
        answers = np.append(np.arange(len(number)), (-1, -1)).astype(np.int32)
        return cls(kernels.index_texts(tuple(number), answers), len(number), lists_with)

    def holds(self, column: Column) -> Words:
        """For each list, the messages whose text is in it: packed bits, shape (lists, words)."""
        numbers = column.answer(lambda texts: kernels.find_texts(texts, self.index), -1)
        return kernels.spread(self.lists_with, self.count, numbers.astype(np.int32, copy=False))
