"""The kernels in NumPy and Arrow: slower than Numba's, and all that is needed for the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.matcher.axes import NumberAxis
from filtering.matcher.column import Column
from filtering.matcher.program import Program
from filtering.predicate import NumberType

REGISTER_BYTES = 1 << 25
PAIR_BYTES = 1 << 25
_PLAIN = {
    NumberType.INT: r"^-?[0-9]{1,9}$",
    NumberType.LONG: r"^-?[0-9]{1,18}$",
    NumberType.DOUBLE: r"^-?[0-9]{1,99}(\.[0-9]{1,99})?([eE]-?[0-9]{1,2})?$",
}
_BITS_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(bool)


def index_texts(texts: tuple[str, ...], answers: npt.NDArray[np.int32]) -> tuple[pa.StringArray, npt.NDArray[np.int32]]:
    return pa.array(texts, pa.string()), answers


def find_texts(column: Column, index: tuple[pa.StringArray, npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    known, answers = index
    texts = column.text_of_each()
    found = pc.index_in(texts, value_set=known).fill_null(len(known)).to_numpy()
    answer: npt.NDArray[np.int32] = answers[found]
    answer[texts.is_null().to_numpy(zero_copy_only=False)] = answers[-1]
    return answer


def pivot(which: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32], names: int) -> npt.NDArray[np.int32]:
    positions = np.full((names, len(offsets) - 1), -1, np.int32)
    wanted = np.flatnonzero(which < names)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    positions[which[wanted], rows[wanted]] = wanted
    return positions


def plain_numbers(
    column: Column, type: NumberType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    distinct = column.text_of_each().dictionary_encode()
    texts = distinct.dictionary
    plain = pc.match_substring_regex(texts, _PLAIN[type]).to_numpy(zero_copy_only=False)
    values = texts.filter(pa.array(plain)).cast(pa.float64() if type is NumberType.DOUBLE else pa.int64()).to_numpy()
    numbers = np.zeros(len(texts) + 1, np.int64)
    numbers[:-1][plain] = _order_of_doubles(values) if type is NumberType.DOUBLE else values
    each = distinct.indices.fill_null(-1).to_numpy()
    return numbers[each], np.append(plain, False)[each], np.append(~plain, False)[each]


def index_cuts(cuts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return cuts


def number_classes(
    numbers: npt.NDArray[np.int64], is_number: npt.NDArray[np.bool_], index: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    classes = np.searchsorted(index, numbers, side="right").astype(np.int32)
    classes[~is_number] = len(index) + 1
    return classes


def evaluate(
    program: Program, classes: npt.NDArray[np.int32], singles: npt.NDArray[np.uint64], rows: int
) -> npt.NDArray[np.uint64]:
    words = (rows + 63) // 64
    bits = np.zeros((program.outputs, words), np.uint64)
    step = max(16, REGISTER_BYTES // 8 // program.registers)
    for first in range(0, words, step):
        last = min(first + step, words)
        registers = np.zeros((program.registers, last - first), np.uint64)
        _load(registers, program, classes[:, first * 64 : last * 64], singles[:, first:last])
        _run(registers, program.instructions, bits[:, first:last])
    return bits


def _load(
    registers: npt.NDArray[np.uint64],
    program: Program,
    classes: npt.NDArray[np.int32],
    singles: npt.NDArray[np.uint64],
) -> None:
    messages = np.arange(classes.shape[1])
    bit = np.uint64(1) << (messages & 63).astype(np.uint64)
    for axis, of_axis in zip(program.axes, classes, strict=True):
        block = registers[axis.start : axis.start + axis.registers]
        inside = np.flatnonzero(of_axis < axis.registers)
        np.bitwise_or.at(block, (of_axis[inside], inside >> 6), bit[inside])
        if isinstance(axis, NumberAxis):
            np.bitwise_or.accumulate(block, axis=0, out=block)
    registers[program.first_single : program.first_single + len(singles)] = singles


def _run(registers: npt.NDArray[np.uint64], instructions: npt.NDArray[np.int32], bits: npt.NDArray[np.uint64]) -> None:
    for target, left, right, inverted in instructions.tolist():
        a, b = registers[left >> 1], registers[right >> 1]
        out = bits[~target] if target < 0 else registers[target]
        np.bitwise_and(~a if left & 1 else a, ~b if right & 1 else b, out=out)
        if inverted:
            np.invert(out, out=out)


def count(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counts


def expand(
    bits: npt.NDArray[np.uint64],
    chosen: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    type: type[np.int32] | type[np.uint16],
) -> npt.NDArray[Any]:
    expanded = np.zeros(starts[-1], type)
    step = max(1, PAIR_BYTES // (bits.shape[1] * 64 + 1))
    for first in range(0, len(chosen), step):
        octets = bits[chosen[first : first + step]].view(np.uint8)
        at = np.nonzero(octets)
        is_set = _BITS_OF_BYTE[octets[at]]
        positions = ((at[1] * 8)[:, None] + np.arange(8))[is_set]
        counts = np.bincount(at[0], is_set.sum(axis=1), len(octets)).astype(np.int64)
        moved = starts[first : first + len(octets)] - (np.cumsum(counts) - counts)
        expanded[np.arange(len(positions)) + np.repeat(moved, counts)] = positions
    return expanded


def _order_of_doubles(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """java_numbers.double_order of doubles that aren't NaN."""
    bits = values.view(np.int64)
    return np.where(bits >= 0, bits, bits ^ np.int64(2**63 - 1))
