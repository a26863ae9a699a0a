"""Typed entry points to the compiled loops: they choose a loop, allocate its arrays, and pass Arrow's buffers on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.frozen import frozen
from filtering.kernels import number_loops, registers, text_loops
from filtering.kernels.compile import Array
from filtering.kernels.registers import REGISTER_WORDS, STORED_AT_ONCE
from filtering.kernels.text_loops import Texts
from filtering.matcher.column import Column
from filtering.matcher.packed_bits import words
from filtering.matcher.program import NumberAxis, Program
from filtering.predicate import NumberType

CELLS_PER_CUT = 8
"""With several cells for each cut, most cells have one cut or none."""
FEW_TEXTS = 16
"""Up to this number of short texts, comparing each text with all of them is cheaper than a hash table."""
SLOTS_PER_TEXT = 64
"""In small tables, few texts share a slot: to go on to the next slot costs twice as much."""
MANY_SLOTS = 1024
"""A table has no more slots than this, or 4 for each text."""
_GREATEST = {NumberType.INT: 2**31 - 1, NumberType.LONG: 2**63 - 1, NumberType.DOUBLE: 0}
_NO_POSITIONS = np.zeros(0, np.int32)
_NO_TEXTS = np.zeros(1, np.int32)
_NO_ROWS = np.zeros(0, np.int64)


@frozen(eq=False)
class FewTexts:
    """Few known texts of up to 8 octets, each as a word, and their answers."""

    words: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    answers: npt.NDArray[np.int32]
    unknown: np.int32
    missing: np.int32


@frozen(eq=False)
class TextIndex:
    """A hash table of known texts. ``unknown`` and ``missing`` are the answers for other texts, and for none.

    ``answers`` has two elements for each slot of ``table``: ``unknown``, and the answer of the slot's text.
    """

    octets: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    table: npt.NDArray[np.void]
    answers: npt.NDArray[np.int32]
    unknown: np.int32
    missing: np.int32


def index_texts(texts: tuple[str, ...], answers: npt.NDArray[np.int32]) -> TextIndex | FewTexts:
    """An index of texts. ``answers``: one for each of ``texts``, then for any other text, then for a missing text."""
    encoded = [text.encode() for text in texts]
    if 0 < len(texts) <= FEW_TEXTS and max(map(len, encoded)) <= 8:
        words_of_texts = np.frombuffer(b"".join(text.ljust(8, b"\0") for text in encoded), np.uint64)
        lengths = np.array([len(text) for text in encoded], np.int64)
        return FewTexts(words_of_texts, _read_only(lengths), _read_only(answers[:-2]), answers[-2], answers[-1])
    octets, offsets, _, _ = _buffers(pa.array(texts, pa.string()))
    room = 1 << len(texts).bit_length()
    table: Array = np.zeros(max(4 * room, min(SLOTS_PER_TEXT * room, MANY_SLOTS)), text_loops.SLOT)
    table["length"] = text_loops.EMPTY
    text_loops.fill_table(octets, offsets, table)
    slot_answers = np.stack([np.full(len(table), answers[-2]), answers[table["text"]]], axis=1).ravel()
    return TextIndex(octets, offsets, table, _read_only(slot_answers), answers[-2], answers[-1])


def find_texts(column: Column, index: TextIndex | FewTexts) -> npt.NDArray[np.int32]:
    """The answer for each message of a column."""
    result = allocate(len(column), np.int32)
    if isinstance(index, FewTexts):
        text_loops.find_few(
            texts_of(column), index.words, index.lengths, index.answers, index.unknown, index.missing, result
        )
        return result
    text_loops.find(
        texts_of(column), index.octets, index.offsets, index.table, index.answers, index.unknown, index.missing, result
    )
    return result


def pivot(name_of: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32], names: int) -> npt.NDArray[np.int32]:
    """Turns the entries of maps into columns: for each name and row, the position of its entry, or -1.

    Row i has the entries ``offsets[i]`` to ``offsets[i + 1]``. Entry j has the name number ``name_of[j]``; numbers from
    ``names`` on are not wanted. The last of equal names counts.
    """
    positions = np.empty((names, len(offsets) - 1), np.int32)
    text_loops.pivot(name_of, _read_only(offsets), positions)
    return positions


def most_numbers(
    column: Column, type: NumberType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """The number of each message, whether it has one, and the messages with ``odd`` texts.

    Odd texts are rare: they may be numbers, but are not parsed here. A number is an integer, or the double_order of a
    double.
    """
    numbers = allocate(len(column), np.int64)
    is_number, odd = allocate(len(column), np.bool_), allocate(len(column), np.bool_)
    count = number_loops.parse(texts_of(column), _GREATEST[type], numbers, is_number, odd)
    return numbers, is_number, np.flatnonzero(odd) if count else _NO_ROWS


@frozen(eq=False)
class CutIndex:
    """Ascending ``cuts``, and ``grid[i]`` cuts in the cells before i: cell i starts i << shift after the first cut.

    No cell has more than ``in_cell`` cuts. After the ``count`` cuts, ``cuts`` has ``in_cell`` + 1 more elements:
    a loop may read beyond the last cut.
    """

    cuts: npt.NDArray[np.int64]
    count: int
    shift: int
    grid: npt.NDArray[np.int32]
    in_cell: int

    @property
    def arguments(self) -> tuple[Array, int, int, Array, int]:
        """As the loops of filtering.kernels.number_loops take them."""
        return _read_only(self.cuts), self.count, self.shift, _read_only(self.grid), self.in_cell


def index_cuts(cuts: npt.NDArray[np.int64]) -> CutIndex:
    span = int(cuts[-1]) - int(cuts[0]) if len(cuts) else 0
    shift = max(0, span.bit_length() - (CELLS_PER_CUT * len(cuts)).bit_length())
    grid = np.empty((span >> shift) + 2, np.int32)
    number_loops.fill_grid(_read_only(cuts), shift, grid)
    in_cell = int(np.diff(grid).max())
    return CutIndex(np.append(cuts, np.full(in_cell + 1, 2**63 - 1)), len(cuts), shift, grid, in_cell)


def most_number_classes(
    column: Column, type: NumberType, index: CutIndex
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The number_classes of a column, and the messages with ``odd`` texts, whose classes are wrong."""
    classes, odd = allocate(len(column), np.int32), allocate(len(column), np.bool_)
    count = number_loops.parse_and_classify(texts_of(column), _GREATEST[type], *index.arguments, classes, odd)
    return classes, np.flatnonzero(odd) if count else _NO_ROWS


def number_classes(
    numbers: npt.NDArray[np.int64], is_number: npt.NDArray[np.bool_], index: CutIndex
) -> npt.NDArray[np.int32]:
    """The class of each number: how many cuts are not greater. One more than all cuts if it is no number."""
    classes = allocate(len(numbers), np.int32)
    number_loops.classify(numbers, is_number, *index.arguments, classes)
    return classes


def evaluate(
    program: Program, classes: npt.NDArray[np.int32], singles: npt.NDArray[np.uint64], rows: int
) -> npt.NDArray[np.uint64]:
    """The matches of the program's outputs: packed bits, shape (outputs, words).

    Bits after the last message may be set. ``classes``: shape (axes, rows), the class of each message. ``singles``:
    packed bits of the leaves without an axis.
    """
    width = words(rows)
    bits = allocate(program.outputs * width, np.uint64).reshape(program.outputs, width)
    registers.evaluate(
        classes,
        np.array([axis.start for axis in program.axes], np.int64),
        np.array([axis.registers for axis in program.axes], np.int64),
        np.array([isinstance(axis, NumberAxis) for axis in program.axes], bool),
        singles,
        program.first_single,
        _read_only(program.instructions),
        allocate((program.registers + 1) * REGISTER_WORDS, np.uint64).reshape(-1, REGISTER_WORDS),
        bits,
    )
    return bits


def count(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The number of set bits of each row."""
    counts = np.empty(len(bits), np.int64)
    registers.count(bits, counts)
    return counts


def spread(text_bits: npt.NDArray[np.uint64], texts: int, positions: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """For each row, the bits about some ``texts`` at ``positions``: packed bits, shape (rows, words). -1: no bit."""
    bits = np.zeros((len(text_bits), words(len(positions))), np.uint64)
    text_loops.spread(_read_only(text_bits), texts, _read_only(positions), bits)
    return bits


def expand(
    bits: npt.NDArray[np.uint64], bit_rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """The positions of the set bits of ``bit_rows``, one row after the other.

    ``starts``: where the positions of each row begin, and the end of the last.
    """
    positions = allocate(int(starts[-1]) + STORED_AT_ONCE, np.int32)
    registers.expand(_read_only(bits), _read_only(bit_rows), _read_only(starts), positions)
    return positions[: starts[-1]]


def allocate(length: int, type: type[np.generic]) -> Array:
    """Memory from Arrow's pool, which reuses the pages of the last batch: new pages cost more than the work here."""
    return np.frombuffer(pa.allocate_buffer(length * np.dtype(type).itemsize), type)


def texts_of(column: Column) -> Texts:
    positions = _NO_POSITIONS if column.positions is None else column.positions
    return (*_buffers(column.texts), _read_only(positions))


def _buffers(texts: pa.StringArray) -> tuple[Array, Array, Array, int]:
    """Octets, offsets, validity bits (empty: all valid), and the position of the first text's validity bit."""
    validity, offsets, octets = (
        np.frombuffer(b"" if buffer is None else buffer, np.uint8) for buffer in texts.buffers()
    )
    starts = offsets.view(np.int32)[texts.offset : texts.offset + len(texts) + 1] if len(texts) else _NO_TEXTS
    return (
        _read_only(octets),
        _read_only(starts),
        _read_only(validity if texts.null_count else validity[:0]),
        texts.offset,
    )


def _read_only(array: Array) -> Array:
    """A read-only view. Numba would compile a function once more for writable arrays."""
    view = array.view()
    view.flags.writeable = False
    return view
