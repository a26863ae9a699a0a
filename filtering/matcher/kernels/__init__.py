"""The loops over messages: compiled by Numba, or, where it can't be imported, the same in NumPy."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from filtering.matcher.column import Column
from filtering.matcher.kernels import in_numpy
from filtering.matcher.program import Program
from filtering.predicate import NumberType

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Integers = type[np.int32] | type[np.uint16]


class Kernels(Protocol):
    def index_texts(self, texts: tuple[str, ...], answers: Int32s) -> Any:
        """Distinct texts made ready to be found; ``answers``: one for each, one for another text, one for none."""

    def find_texts(self, column: Column, index: Any) -> Int32s:
        """The answer for the text of each message."""

    def pivot(self, which: Int32s, offsets: Int32s, names: int) -> Int32s:
        """Shape (names, messages): which of the entries offsets[i] … offsets[i + 1] of message i has name j, or -1."""

    def plain_numbers(self, column: Column, type: NumberType) -> tuple[Int64s, Bools, Bools]:
        """Each message's number as on a NumberAxis, whether it has one, and whether its text is too odd to tell."""

    def index_cuts(self, cuts: Int64s) -> Any:
        """The ascending cuts of a NumberAxis made ready to be searched."""

    def number_classes(self, numbers: Int64s, is_number: Bools, index: Any) -> Int32s:
        """The class of each message on a NumberAxis."""

    def evaluate(self, program: Program, classes: Int32s, singles: Words, rows: int) -> Words:
        """Packed bits of shape (outputs, words). ``classes``: (axes, rows), ``singles``: packed bits."""

    def count(self, bits: Words) -> Int64s:
        """How many bits of each row are set."""

    def expand(self, bits: Words, chosen: Int64s, starts: Int64s, type: Integers) -> npt.NDArray[Any]:
        """The positions of the set bits of bits[chosen[i]], from starts[i] on, then zeros up to starts[i + 1].

        An array of starts[-1] integers of that type; uint16 holds the positions of 65,536 messages.
        """


def _load() -> Kernels:
    try:
        from filtering.matcher.kernels import compiled
    except ImportError:
        return in_numpy
    return compiled


backend = _load()
