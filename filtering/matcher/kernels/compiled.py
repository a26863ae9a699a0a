"""The kernels compiled by Numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher.axes import NumberAxis
from filtering.matcher.column import Column
from filtering.matcher.kernels import bit_loops, number_loops, text_loops
from filtering.matcher.program import Program
from filtering.predicate import NumberType

REGISTER_WORDS = 32
_GREATEST = {NumberType.INT: 2**31 - 1, NumberType.LONG: 2**63 - 1, NumberType.DOUBLE: 0}
_NO_INT32 = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class TextIndex:
    """A hash table: slots with the number of a text, and the hash of each text."""

    octets: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]


def index_texts(texts: tuple[str, ...]) -> TextIndex:
    octets, offsets, _, _ = _buffers(pa.array(texts, pa.string()))
    table = np.full(1 << (2 * len(texts)).bit_length(), text_loops.EMPTY, np.int32)
    hashes = np.zeros(len(texts), np.uint64)
    text_loops.fill_table(octets, offsets, table, hashes)
    return TextIndex(octets, offsets, table, hashes)


def find_texts(column: Column, index: TextIndex) -> npt.NDArray[np.int32]:
    found = np.empty(len(column), np.int32)
    text_loops.find(*_texts(column), index.octets, index.offsets, index.table, index.hashes, found)
    return found


def pivot(which: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32], names: int) -> npt.NDArray[np.int32]:
    positions = np.empty((names, len(offsets) - 1), np.int32)
    text_loops.pivot(which, _read_only(offsets), positions)
    return positions


def plain_numbers(
    column: Column, type: NumberType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    numbers = np.empty(len(column), np.int64)
    is_number, odd = np.empty(len(column), bool), np.empty(len(column), bool)
    number_loops.parse(*_texts(column), _GREATEST[type], numbers, numbers.view(np.float64), is_number, odd)
    return numbers, is_number, odd


def number_classes(
    numbers: npt.NDArray[np.int64], is_number: npt.NDArray[np.bool_], cuts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    classes = np.empty(len(numbers), np.int32)
    number_loops.classify(_read_only(numbers), _read_only(is_number), _read_only(cuts), classes)
    return classes


def evaluate(
    program: Program, classes: npt.NDArray[np.int32], singles: npt.NDArray[np.uint64], rows: int
) -> npt.NDArray[np.uint64]:
    bits = np.empty((program.outputs, (rows + 63) // 64), np.uint64)
    bit_loops.evaluate(
        classes,
        np.array([axis.start for axis in program.axes], np.int64),
        np.array([axis.registers for axis in program.axes], np.int64),
        np.array([isinstance(axis, NumberAxis) for axis in program.axes], bool),
        singles,
        program.first_single,
        _read_only(program.instructions),
        np.zeros((program.registers, REGISTER_WORDS), np.uint64),
        bits,
    )
    return bits


def expand(bits: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    total = int(counts.sum())
    positions = np.empty(total + 8, np.int32)
    bit_loops.expand(bits.view(np.uint8), counts, positions)
    return positions[:total]


def _texts(column: Column) -> tuple[Any, ...]:
    positions = _NO_INT32 if column.positions is None else column.positions
    return (*_buffers(column.texts), _read_only(positions))


def _buffers(texts: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.uint8], int]:
    """Octets, offsets, validity (empty: all valid) and the bit of it that belongs to the first text."""
    validity, offsets, octets = (
        np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8) for buffer in texts.buffers()
    )
    if texts.null_count == 0:
        validity = validity[:0]
    offsets = (
        offsets.view(np.int32)[texts.offset : texts.offset + len(texts) + 1] if len(texts) else np.zeros(1, np.int32)
    )
    return _read_only(octets), _read_only(offsets), _read_only(validity), texts.offset


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numba compiles a function again for arrays that may be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
