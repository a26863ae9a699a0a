"""The values of properties in a batch of messages, and which of some known texts each value is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.frozen import frozen
from filtering.kernels import text_loops
from filtering.kernels.compile import Array, allocate, read_only
from filtering.kernels.text_loops import Texts

_NO_POSITIONS = read_only(np.zeros(0, np.int32))
_NO_TEXTS = np.zeros(1, np.int32)


@frozen(eq=False)
class Column:
    """Message i has ``texts[positions[i]]`` (int32), or ``texts[i]`` if ``positions`` is None.

    The property is missing if the position is -1 or the text is null.
    """

    texts: pa.StringArray
    positions: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.texts) if self.positions is None else len(self.positions)

    @property
    def buffers(self) -> Texts:
        """The column as loops take it."""
        return (*_buffers(self.texts), _NO_POSITIONS if self.positions is None else read_only(self.positions))

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


def _buffers(texts: pa.StringArray) -> tuple[Array, Array, Array, int]:
    """Octets, offsets, validity bits (empty: all valid), and the position of the first text's validity bit."""
    validity, offsets, octets = (
        np.frombuffer(b"" if buffer is None else buffer, np.uint8) for buffer in texts.buffers()
    )
    starts = offsets.view(np.int32)[texts.offset : texts.offset + len(texts) + 1] if len(texts) else _NO_TEXTS
    return read_only(octets), read_only(starts), read_only(validity if texts.null_count else validity[:0]), texts.offset


# Known texts.


FEW_TEXTS = 16
"""Up to this number of short texts, comparing each text with all of them is cheaper than a hash table."""
SLOTS_PER_TEXT = 64
"""In small tables, few texts share a slot: to go on to the next slot costs twice as much."""
MANY_SLOTS = 1024
"""A table has no more slots than this, or 4 for each text."""


@frozen(eq=False)
class FewTexts:
    """Few known texts of up to 8 octets, each as a word, and their answers."""

    words: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    text_answers: npt.NDArray[np.int32]
    unknown: np.int32
    missing: np.int32

    def answers(self, column: Column) -> npt.NDArray[np.int32]:
        """The answer for each message of a column."""
        known = (self.words, self.lengths, self.text_answers, self.unknown, self.missing)
        return _answered_by(text_loops.find_few, column, known)


@frozen(eq=False)
class TextTable:
    """A hash table of known texts. ``unknown`` and ``missing`` are the answers for other texts, and for none.

    ``slot_answers`` has two elements for each slot of ``table``: ``unknown``, and the answer of the slot's text.
    """

    octets: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    table: npt.NDArray[np.void]
    slot_answers: npt.NDArray[np.int32]
    unknown: np.int32
    missing: np.int32

    def answers(self, column: Column) -> npt.NDArray[np.int32]:
        """The answer for each message of a column."""
        known = (self.octets, self.offsets, self.table, self.slot_answers, self.unknown, self.missing)
        return _answered_by(text_loops.find, column, known)


def _answered_by(loop: Callable[..., None], column: Column, known: tuple[object, ...]) -> npt.NDArray[np.int32]:
    result = allocate(len(column), np.int32)
    loop(column.buffers, *known, result)
    return result


KnownTexts = FewTexts | TextTable


def known_texts(texts: tuple[str, ...], answers: npt.NDArray[np.int32]) -> KnownTexts:
    """``answers``: one for each of ``texts``, then for any other text, then for a missing text."""
    encoded = [text.encode() for text in texts]
    if 0 < len(texts) <= FEW_TEXTS and max(map(len, encoded)) <= 8:
        words_of_texts = np.frombuffer(b"".join(text.ljust(8, b"\0") for text in encoded), np.uint64)
        lengths = np.array([len(text) for text in encoded], np.int64)
        return FewTexts(words_of_texts, read_only(lengths), read_only(answers[:-2]), answers[-2], answers[-1])
    octets, offsets, _, _ = _buffers(pa.array(texts, pa.string()))
    room = 1 << len(texts).bit_length()
    table: Array = np.zeros(max(4 * room, min(SLOTS_PER_TEXT * room, MANY_SLOTS)), text_loops.SLOT)
    table["length"] = text_loops.EMPTY
    text_loops.fill_table(octets, offsets, table)
    slot_answers = np.stack([np.full(len(table), answers[-2]), answers[table["text"]]], axis=1).ravel()
    return TextTable(octets, offsets, table, read_only(slot_answers), answers[-2], answers[-1])


# Columns, from different Arrow layouts.


_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def columns(properties: pa.RecordBatch | pa.Array, names: tuple[str, ...]) -> dict[str, Column]:
    """The columns of the properties ``names`` that the batch has. Raises TypeError for another kind of batch."""
    if isinstance(properties, pa.MapArray):
        return _map_columns(properties, names)
    if isinstance(properties, pa.StructArray):
        properties = pa.RecordBatch.from_arrays(properties.flatten(), properties.type.names)
    if not isinstance(properties, pa.RecordBatch):
        raise TypeError(f"properties must be a RecordBatch, StructArray or MapArray, not {type(properties).__name__}.")
    present = set(properties.schema.names)
    return {name: _column(properties.column(name), name) for name in names if name in present}


def _column(array: pa.Array, name: str) -> Column:
    if not pa.types.is_dictionary(array.type):
        return Column(_strings(array, name))
    if len(array.dictionary) > len(array):
        return Column(_strings(array.dictionary_decode(), name))
    return Column(_strings(array.dictionary, name), array.indices.cast(pa.int32()).fill_null(-1).to_numpy())


def _strings(array: pa.Array, name: str) -> pa.StringArray:
    """The texts, or only nulls. Raises TypeError for other types: the text of a number is not known."""
    type_ = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if type_ not in _TEXTS:
        raise TypeError(f"properties are texts: {name} has the type {type_}")
    return array if array.type == pa.string() else array.cast(pa.string())


def _map_columns(properties: pa.MapArray, names: tuple[str, ...]) -> dict[str, Column]:
    # A slice of a MapArray has its own offsets, but all keys and items of the original array.
    offsets = properties.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    keys = _strings(properties.keys.slice(first, last - first), "a key of the map")
    items = _strings(properties.items.slice(first, last - first), "an item of the map")
    name_of = known_texts(names, np.arange(len(names) + 2, dtype=np.int32)).answers(Column(keys))
    positions = np.empty((len(names), len(offsets) - 1), np.int32)
    text_loops.pivot(name_of, read_only(offsets - first), positions)
    if properties.null_count:
        positions[:, properties.is_null().to_numpy(zero_copy_only=False)] = -1
    return {name: Column(items, positions[i]) for i, name in enumerate(names)}
