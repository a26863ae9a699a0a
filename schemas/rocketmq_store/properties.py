"""Cuts the properties of messages into the columns of ``commitlog``, chunk by chunk, or into pairs.

A property text is ``name 0x01 value 0x02 …`` (MessageDecoder.string2messageProperties): the first 0x01 after a pair's
start separates, the last 0x02 may be absent, pairs without a name or a value are dropped, and the last of equal names
wins. PropertyColumns gives each name of a topic a *slot*, in the order of first appearance: slot i is column i. Names
without a slot stay a text.

1. ``find_pairs`` finds the values of each slot in a chunk. Messages of one topic have mostly the same names in the same
   order, so a name is first searched in the slot that followed the previous name the last time.
2. The values of a slot become an Arrow column: a dictionary while there are few distinct values (PropertyValues). Texts
   are numbered by a hash table (Interner).
3. If a name or value is not UTF-8, the chunk's texts are decoded as Java does, and cut once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java import decode_utf8, is_utf8, unchecked_string_array
from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import KEPT, load_word
from filtering.kernels.text_loops import hash_text, same_middle
from schemas.rocketmq_store.record_layout import (
    Bytes,
    Offsets,
    Positions,
    decoded_texts,
    find_two,
    lowest_byte,
    spans,
    store,
)
from schemas.rocketmq_store.segments import SLACK

# Slots.


Cells = NDArray[np.int32]

NAME_BYTES = 256
"""A longer name gets no slot."""


@compiled
def find_pairs(
    log: Bytes,
    starts: Positions,
    lengths: Positions,
    topics: NDArray[np.int32],
    names: Bytes,
    name_lengths: Cells,
    used: Cells,
    follower: Cells,
    value_starts: Cells,
    value_lengths: Cells,
    overflow: NDArray[np.bool_],
) -> None:
    """Finds the pairs of the texts at ``starts``; SLACK bytes after the last can be read.

    ``names`` (topics x slots x NAME_BYTES), ``name_lengths`` (topics x slots) and ``used`` (topics) are the slots
    so far, and grow; ``follower`` (topics x slots + 1) is the slot that followed each, the last one the first of a
    message. Slot s of row i gets its value's position and length in ``value_starts[s, i]`` and
    ``value_lengths[s, i]``, which must be zero before. ``overflow[i]``: some pair of the row has no slot.
    """
    slots = name_lengths.shape[1]
    for row in range(len(starts)):
        topic = topics[row]
        count = int(used[topic])
        start = int(starts[row])
        limit = start + int(lengths[row])
        before = slots
        while start < limit:
            first = load_word(log, start)
            slot = -1
            separator = -1
            candidate = int(follower[topic, before])
            for _ in range(count):
                candidate = candidate if candidate < count else 0
                length = int(name_lengths[topic, candidate])
                if (
                    start + length < limit
                    and log[start + length] == NAME_VALUE_SEPARATOR
                    and (first ^ load_word(names[topic, candidate], 0)) & KEPT[min(length, 8)] == 0
                    and (length <= 8 or _same(log, start, names[topic, candidate], length))
                ):
                    slot = candidate
                    separator = start + length
                    break
                candidate += 1
            if slot < 0:
                separator = _separator(log, start, limit)
                if separator == limit or log[separator] == PROPERTY_SEPARATOR:
                    start = separator + 1
                    continue
            end = find_two(log, separator + 1, limit)
            if start < separator < end - 1:
                length = separator - start
                if slot < 0 and count < slots and length <= NAME_BYTES - 8:
                    slot = count
                    for i in range(length):
                        names[topic, slot, i] = log[start + i]
                    name_lengths[topic, slot] = length
                    count += 1
                    used[topic] = count
                if slot < 0:
                    overflow[row] = True
                else:
                    value_starts[slot, row] = separator + 1
                    value_lengths[slot, row] = end - separator - 1
            if slot >= 0:
                follower[topic, before] = slot
                before = slot
            start = end + 1


@compiled
def _separator(log: Bytes, start: int, limit: int) -> int:
    """The first 0x01 or 0x02 from ``start`` on, or ``limit``."""
    at = start
    while at < limit and log[at] != NAME_VALUE_SEPARATOR and log[at] != PROPERTY_SEPARATOR:
        at += 1
    return at


@compiled
def _same(log: Bytes, start: int, name: Bytes, length: int) -> bool:
    for i in range(8, length):  # noqa: SIM110  Numba is slow on all()
        if log[start + i] != name[i]:
            return False
    return True


# Texts as numbers, in the order of their first appearance.


Numbers = NDArray[np.int32]
_SLOT = np.dtype(
    {"names": ["first", "last", "length", "number"], "formats": [np.uint64, np.uint64, np.int32, np.int32]}, align=True
)
"""The first and last 8 octets, the length and the number of a text."""
_EMPTY = -1
SLOTS_OF_A_TEXT = 8
"""Few texts then have to go on from another text's slot."""
BLOCK = 256
_FIRST_FACTOR, _LAST_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Interner:
    """Numbers texts, and remembers them from call to call.

    ``most``: the greatest number of texts, a power of two less 1; None: there is none.
    """

    def __init__(self, most: int | None = None) -> None:
        self.count = 0
        self._most = most
        self._octets = np.empty(1 << 12, np.uint8)
        self._ends = np.zeros(1 << 7, np.int32)
        self._table = _empty_table(len(self._ends))

    def numbers(self, log: Bytes, starts: Positions | Cells, lengths: Positions | Cells) -> Numbers | None:
        """The number of the text at each position of ``log``. None if there are too many texts."""
        numbers = np.empty(len(starts), np.int32)
        starts, lengths = starts.astype(np.int32, copy=False), lengths.astype(np.int32, copy=False)
        row = 0
        while True:
            self.count, row = _number(
                log, starts, lengths, self._octets, self._ends, self._table, self.count, numbers, row
            )
            if row == len(starts):
                return numbers
            if self._most is not None and self.count >= self._most:
                return None
            self._grow(int(lengths[row]))

    def texts(self, first: int = 0) -> tuple[Numbers, Bytes]:
        """The texts from number ``first`` on, as Arrow's offsets and data."""
        ends = self._ends[first : self.count + 1]
        return ends - ends[0], self._octets[ends[0] : ends[-1]].copy()

    def _grow(self, length: int) -> None:
        """Makes room for twice as many texts, and for one more of ``length`` bytes."""
        known = self._octets.view()
        known.flags.writeable = False
        ends = self._ends[: self.count + 1]
        self._octets = np.empty(2 * len(known) + length, np.uint8)
        self._ends = np.zeros(2 * len(self._ends), np.int32)
        self._table = _empty_table(len(self._ends))
        numbers = np.empty(self.count, np.int32)
        _number(known, ends[:-1], np.diff(ends), self._octets, self._ends, self._table, 0, numbers, 0)


def _empty_table(texts: int) -> Array:
    table: Array = np.zeros(SLOTS_OF_A_TEXT * texts, _SLOT)
    table["length"] = _EMPTY
    return table


@compiled
def _number(
    log: Bytes,
    starts: Numbers,
    lengths: Numbers,
    octets: Bytes,
    ends: Numbers,
    table: Any,
    count: int,
    numbers: Numbers,
    first_row: int,
) -> tuple[int, int]:
    """Returns how many texts are known now, and the row at which there was no room for another."""
    firsts, lasts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    slots = np.empty(BLOCK, np.uint64)
    for block in range(first_row, len(starts), BLOCK):
        used = min(BLOCK, len(starts) - block)
        _load(log, starts[block : block + used], lengths[block : block + used], firsts, lasts)
        _hash(lengths[block : block + used], firsts, lasts, slots, np.uint64(len(table) - 1))
        for i in range(used):
            slot, length = slots[i], np.int32(lengths[block + i])
            known = table[slot]
            different = (known.first ^ firsts[i]) | (known.last ^ lasts[i]) | np.uint64(known.length ^ length)
            number = known.number
            if different or length > 16:
                number = _find(log, np.int64(starts[block + i]), length, firsts[i], lasts[i], octets, ends, table, slot)
                if number < 0:
                    if not _add(log, starts[block + i], length, octets, ends, count):
                        return count, block + i
                    slot = np.uint64(-1 - number)
                    table[slot].first, table[slot].last = firsts[i], lasts[i]
                    table[slot].length, table[slot].number = length, count
                    number = count
                    count += 1
            numbers[block + i] = number
    return count, len(starts)


@compiled
def _load(log: Bytes, starts: Array, lengths: Array, firsts: Array, lasts: Array) -> None:
    """Loads 8 octets from the start of each text, and the last 8 octets of longer texts."""
    for i in range(len(starts)):
        start: Int = np.int64(starts[i])
        length: Int = np.int64(lengths[i])
        firsts[i] = load_word(log, start)
        lasts[i] = load_word(log, start + max(length - 8, 0))


@compiled
def _hash(lengths: Array, firsts: Array, lasts: Array, slots: Array, mask: Int) -> None:
    """Clears what follows each text in its word, and computes its slot."""
    for i in range(len(lengths)):
        length: Int = np.int64(lengths[i])
        beyond = np.uint64(64 - 8 * min(length, 8))
        first = (firsts[i] << beyond) >> beyond if length else np.uint64(0)
        last = lasts[i] if length > 8 else np.uint64(0)
        mixed = first ^ (last * _LAST_FACTOR + np.uint64(length))
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _FIRST_FACTOR  # many texts differ only in their last octets
        firsts[i], lasts[i] = first, last
        slots[i] = (mixed >> np.uint64(32)) & mask


@compiled
def _find(
    log: Bytes, start: Int, length: Int, first: Int, last: Int, octets: Bytes, ends: Numbers, table: Any, slot: Int
) -> Int:
    """The number of a text, searched from ``slot`` on. If it is unknown: -1 - the empty slot where it belongs."""
    mask = np.uint64(len(table) - 1)
    if length > 16:
        slot = hash_text(log, start, length, first, last) & mask
    while table[slot].length != _EMPTY:
        known = table[slot]
        if (
            known.first == first
            and known.last == last
            and known.length == length
            and (length <= 16 or same_middle(log, start, octets, np.int64(ends[known.number]), length))
        ):
            return np.int64(known.number)
        slot = (slot + np.uint64(1)) & mask
    return -1 - np.int64(slot)


@compiled
def _add(log: Bytes, start: Int, length: Int, octets: Bytes, ends: Numbers, count: int) -> bool:
    """Whether there was room for another text."""
    begin = np.int64(ends[count])
    if count + 1 >= len(ends) or begin + length > len(octets):
        return False
    for i in range(length):
        octets[begin + i] = log[start + i]
    ends[count + 1] = begin + length
    return True


# Columns: a dictionary while there are few distinct values.


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
        offsets, data = spans(log, starts, lengths)
        return unchecked_string_array(offsets, data, missing) if is_utf8(offsets, data) else None

    def _texts_are_utf8(self, interner: Interner) -> bool:
        if interner.count > len(self._texts):
            offsets, data = interner.texts()
            if not is_utf8(offsets, data):
                return False
            self._texts = unchecked_string_array(offsets, data)
        return True


Cut: TypeAlias = tuple[list[Texts | None], pa.StringArray | None]
"""The properties of n messages, cut into columns: the values of each slot, None if no message has any; and the
properties without a slot, as a text like the record's own, null if there are none."""


class PropertyColumns:
    """Gives each property name of a topic a slot, in the order of first appearance, as long as there are slots.

    It remembers the names from chunk to chunk. The names in ``named`` get the first slots in every topic, then those in
    ``wanted``, by topic.
    """

    def __init__(self, slots: int, named: Sequence[str], wanted: Mapping[str, Sequence[str]]) -> None:
        self._slots = slots + len(named)
        self._named = [name.encode() for name in named]
        self._wanted = wanted
        self._names = np.zeros((0, self._slots, NAME_BYTES), np.uint8)
        self._lengths = np.zeros((0, self._slots), np.int32)
        self._used = np.zeros(0, np.int32)
        self._follower = np.zeros((0, self._slots + 1), np.int32)
        self._decoded: dict[int, tuple[str, ...]] = {}
        self._values = [PropertyValues() for _ in range(self._slots)]

    def names(self, topic: int) -> tuple[str, ...]:
        """The names that have a slot in a topic, those of ``named`` first."""
        known = self._decoded.get(topic, ())
        if len(known) < self._used[topic]:
            new = slice(len(known), self._used[topic])
            known += tuple(
                decode_utf8(name[:length].tobytes())
                for name, length in zip(self._names[topic, new], self._lengths[topic, new], strict=True)
            )
            self._decoded[topic] = known
        return known

    def cut(
        self,
        log: Bytes,
        starts: Positions,
        lengths: Positions,
        topic_codes: NDArray[np.int32],
        topics: Sequence[str],
    ) -> Cut:
        """The properties in the texts at ``starts``, each of a message; ``topics``: all known so far, by code."""
        self._add_topics(topics[len(self._used) :])
        used_before = self._used.copy()
        texts = log, starts, lengths
        properties = self._cut(*texts, topic_codes, used_before)
        if properties is None:
            self._used[:] = used_before
            properties = self._cut(*decoded_texts(*texts), topic_codes, used_before)
            assert properties is not None
        return properties

    def _add_topics(self, topics: Sequence[str]) -> None:
        if not topics:
            return
        slots = np.zeros((len(topics), self._slots, NAME_BYTES), np.uint8)
        lengths = np.zeros((len(topics), self._slots), np.int32)
        used = np.zeros(len(topics), np.int32)
        for row, topic in enumerate(topics):
            names = dict.fromkeys([*self._named, *(name.encode() for name in self._wanted.get(topic, ()))])
            kept = [name for name in names if len(name) <= NAME_BYTES - SLACK][: self._slots]
            for slot, name in enumerate(kept):
                slots[row, slot, : len(name)] = np.frombuffer(name, np.uint8)
                lengths[row, slot] = len(name)
            used[row] = len(kept)
        follower = np.arange(1, self._slots + 2, dtype=np.int32)[None] % self._slots
        self._names = np.concatenate([self._names, slots])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._used = np.concatenate([self._used, used])
        self._follower = np.concatenate([self._follower, np.repeat(follower, len(topics), axis=0)])

    def _cut(
        self,
        log: Bytes,
        starts: Positions,
        lengths: Positions,
        topic_codes: NDArray[np.int32],
        used_before: NDArray[np.int32],
    ) -> Cut | None:
        """The properties; None if some name or value is not UTF-8. New names have got slots in any case."""
        rows = len(starts)
        value_starts = np.zeros((self._slots, rows), np.int32)
        value_lengths = np.zeros((self._slots, rows), np.int32)
        overflow = np.zeros(rows, bool)
        find_pairs(
            log, starts, lengths, topic_codes, self._names, self._lengths, self._used, self._follower,
            value_starts, value_lengths, overflow,
        )  # fmt: skip
        if not self._new_names_are_utf8(used_before):
            return None
        columns: list[Texts | None] = []
        for values, at, length in zip(self._values, value_starts, value_lengths, strict=True):
            column = None
            if length.any():
                column = values.read(log, at, length)
                if column is None:
                    return None
            columns.append(column)
        others = None
        if overflow.any():
            others = self._others(log, starts, lengths, topic_codes, overflow)
            if others is None:
                return None
        return columns, others

    def _new_names_are_utf8(self, used_before: NDArray[np.int32]) -> bool:
        for topic in np.flatnonzero(self._used > used_before).tolist():
            for slot in range(used_before[topic], self._used[topic]):
                name = self._names[topic, slot, : self._lengths[topic, slot]].tobytes()
                if decode_utf8(name).encode() != name:
                    return False
        return True

    def _others(
        self,
        log: Bytes,
        starts: Positions,
        lengths: Positions,
        topic_codes: NDArray[np.int32],
        overflow: NDArray[np.bool_],
    ) -> pa.StringArray | None:
        """The properties without a slot of rows with ``overflow``; None if some name or value is not UTF-8."""
        texts = more_properties(
            log, starts[overflow], lengths[overflow], topic_codes[overflow], self._names, self._lengths, self._used
        )
        if texts is None:
            return None
        offsets, data = texts
        sizes = np.zeros(len(starts) + 1, np.int32)
        sizes[1:][overflow] = np.diff(offsets)
        return unchecked_string_array(np.cumsum(sizes, dtype=np.int32), data, ~overflow)


# Property texts cut into pairs, for maps, and for properties that have no column of their own (``more_properties``):
# these are kept as such a text, in which each name occurs once, and no name or value is empty.
#
# Most of the bytes that are read from a log are property texts, so text is copied and searched eight bytes at a time.


NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR = 1, 2
"""The bytes between a name and its value, and after a value (MessageDecoder)."""
MIX = np.uint64(0x9E3779B97F4A7C15)
THREES, HIGH_BITS = (np.uint64(byte * 0x0101010101010101) for byte in (0x03, 0x80))


@compiled
def split(log: Bytes, starts: Positions, lengths: Positions) -> tuple[Offsets, Offsets, Bytes, Offsets, Bytes]:
    """The pairs of the texts at ``starts``, whose ``lengths`` are in bytes; SLACK bytes after the last may be read.

    Returns pairs, the offsets and bytes of keys, and the offsets and bytes of values, as Arrow's buffers: row i has
    the pairs ``pairs[i]`` to ``pairs[i + 1]``. The first 0x01 after a pair's start separates, the last 0x02 may be
    absent, pairs without a key or a value are dropped, and the last of equal keys wins.
    """
    rows = len(starts)
    size = int(lengths.sum())
    most = (size + rows) // 4 + 1
    pairs = np.zeros(rows + 1, np.int32)
    key_ends, value_ends = np.zeros(most + 1, np.int32), np.zeros(most + 1, np.int32)
    keys, values = np.empty(size + SLACK, np.uint8), np.empty(size + SLACK, np.uint8)
    count = 0
    for row in range(rows):
        start = int(starts[row])
        limit = start + int(lengths[row])
        seen = np.uint64(0)  # a bit for each length, first and last byte of a key: most keys differ in these
        while start < limit:
            separator = _copy(log, start, limit, keys, int(key_ends[count]), NAME_VALUE_SEPARATOR)
            end = separator
            if separator < limit and log[separator] == NAME_VALUE_SEPARATOR:
                end = _copy(log, separator + 1, limit, values, int(value_ends[count]), PROPERTY_SEPARATOR)
                if start < separator < end - 1:
                    key_ends[count + 1] = key_ends[count] + separator - start
                    value_ends[count + 1] = value_ends[count] + end - separator - 1
                    shape = (separator - start) << 16 | log[start] << 8 | log[separator - 1]
                    count += 1
                    bit = np.uint64(1) << ((np.uint64(shape) * MIX) >> np.uint64(58))
                    if seen & bit:
                        earlier = _first_with_key_of(keys, key_ends, pairs[row], count - 1)
                        if earlier < count - 1:
                            _drop(keys, key_ends, earlier, count)
                            _drop(values, value_ends, earlier, count)
                            count -= 1
                    seen |= bit
            start = end + 1
        pairs[row + 1] = count
    return pairs, key_ends[: count + 1], keys[: key_ends[count]], value_ends[: count + 1], values[: value_ends[count]]


@compiled
def _copy(text: Bytes, start: int, limit: int, out: Bytes, at: int, separator: int) -> int:
    """Copies up to ``separator``, a property's end, or ``limit``, and up to 7 bytes more. Returns the end."""
    while True:
        word = load_word(text, start)
        store(out, at, word)
        below_three = (word - THREES) & ~word & HIGH_BITS  # the lowest bit set is right, those above may not be
        step = lowest_byte(below_three) if below_three else 8
        start += step
        if start >= limit:
            return limit
        at += step
        if step < 8:
            if text[start] == separator or text[start] == PROPERTY_SEPARATOR:
                return start
            start += 1
            at += 1


@compiled
def _first_with_key_of(keys: Bytes, key_ends: Offsets, first: int, last: int) -> int:
    name = keys[key_ends[last] : key_ends[last + 1]]
    for pair in range(first, last):
        start = key_ends[pair]
        if key_ends[pair + 1] - start == len(name) and is_name(keys[start:], name):
            return pair
    return last


@compiled
def is_name(longer: Bytes, name: Bytes) -> bool:
    """Whether the octets begin with a name."""
    for i in range(len(name)):  # noqa: SIM110  Numba is slow on all()
        if longer[i] != name[i]:
            return False
    return True


@compiled
def _drop(data: Bytes, ends: Offsets, pair: int, count: int) -> None:
    gap = ends[pair + 1] - ends[pair]
    for i in range(ends[pair + 1], ends[count]):
        data[i - gap] = data[i]
    for i in range(pair, count):
        ends[i] = ends[i + 1] - gap


class Pairs(NamedTuple):
    """The names and values in n property texts. Text i has those from ``ends[i]`` to ``ends[i + 1]`` (exclusive)."""

    ends: Offsets
    names: pa.StringArray
    values: pa.StringArray

    @classmethod
    def cut(cls, log: Bytes, starts: Positions, lengths: Positions) -> Pairs | None:
        """Those of the texts at ``starts``. None if some name or value is not UTF-8."""
        ends, name_ends, names, value_ends, values = split(log, starts, lengths)
        if not (is_utf8(name_ends, names) and is_utf8(value_ends, values)):
            return None
        return cls(ends, unchecked_string_array(name_ends, names), unchecked_string_array(value_ends, values))

    @classmethod
    def of(cls, texts: pa.StringArray) -> Pairs:
        """Those of texts, of which nulls have none."""
        bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(bytes(texts.buffers()[2] or b"") + bytes(SLACK), np.uint8)
        pairs = cls.cut(data, bounds[:-1].astype(np.int64), np.diff(bounds))
        assert pairs is not None
        return pairs

    def text_of_each(self) -> NDArray[np.int64]:
        """The number of the text in which each name is."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    def value(self, name: str) -> pa.StringArray:
        """The value of a property in each text; null if it has none."""
        _, name_ends, names = self.names.buffers()
        octets = np.frombuffer(names or bytearray(), np.uint8)
        wanted = np.frombuffer(name.encode(), np.uint8)
        at = _pairs_named(self.ends, np.frombuffer(name_ends, np.int32), octets, wanted)
        return self.values.take(pa.array(at, mask=at < 0))


@compiled
def _pairs_named(ends: Offsets, name_ends: Offsets, names: Bytes, name: Bytes) -> Offsets:
    """The number of the pair with a name in each text; -1 if it has none."""
    pairs = np.full(len(ends) - 1, -1, np.int32)
    for text in range(len(pairs)):
        for pair in range(ends[text], ends[text + 1]):
            start = name_ends[pair]
            if name_ends[pair + 1] - start == len(name) and is_name(names[start:], name):
                pairs[text] = pair
                break
    return pairs


# Properties without a column.


_NAME_VALUE_SEPARATOR, _PROPERTY_SEPARATOR = chr(NAME_VALUE_SEPARATOR), chr(PROPERTY_SEPARATOR)


def more_properties(
    log: Bytes,
    starts: Positions,
    lengths: Positions,
    topics: NDArray[np.int32],
    names: Bytes,
    name_lengths: Offsets,
    used: Offsets,
) -> tuple[Offsets, Bytes] | None:
    """The properties without a slot of the texts at ``starts``: the offsets and data of as many texts.

    ``names``, ``name_lengths`` and ``used`` are the slots of the topics, as in find_pairs. None if some name or value
    is not UTF-8.
    """
    pairs, name_ends, all_names, value_ends, values = split(log, starts, lengths)
    if not (is_utf8(name_ends, all_names) and is_utf8(value_ends, values)):
        return None
    return _join(pairs, name_ends, all_names, value_ends, values, topics, names, name_lengths, used)


def message_properties(text: str) -> dict[str, str]:
    """The properties in a property text (MessageDecoder.string2messageProperties)."""
    properties = {}
    for pair in text.split(_PROPERTY_SEPARATOR):
        name, separator, value = pair.partition(_NAME_VALUE_SEPARATOR)
        if separator and name and value:
            properties[name] = value
    return properties


@compiled
def _join(
    pairs: Offsets,
    name_ends: Offsets,
    all_names: Bytes,
    value_ends: Offsets,
    values: Bytes,
    topics: NDArray[np.int32],
    slot_names: Bytes,
    slot_name_lengths: Offsets,
    used: Offsets,
) -> tuple[Offsets, Bytes]:
    """The pairs of each row whose name has no slot in the row's topic, as texts."""
    offsets = np.zeros(len(pairs), np.int32)
    data = np.empty(len(all_names) + len(values) + 2 * len(name_ends), np.uint8)
    at = 0
    for row in range(len(pairs) - 1):
        topic = topics[row]
        for pair in range(pairs[row], pairs[row + 1]):
            name = all_names[name_ends[pair] : name_ends[pair + 1]]
            has_slot = False
            for slot in range(used[topic]):
                if slot_name_lengths[topic, slot] == len(name) and is_name(slot_names[topic, slot], name):
                    has_slot = True
                    break
            if has_slot:
                continue
            if at > offsets[row]:
                data[at] = PROPERTY_SEPARATOR
                at += 1
            value = values[value_ends[pair] : value_ends[pair + 1]]
            at = _append(data, at, name)
            data[at] = NAME_VALUE_SEPARATOR
            at = _append(data, at + 1, value)
        offsets[row + 1] = at
    return offsets, data[:at]


@compiled
def _append(data: Bytes, at: int, text: Bytes) -> int:
    """Copies ``text``, and returns the position after it. Numba takes seconds to compile an assignment of a slice."""
    for i in range(len(text)):
        data[at + i] = text[i]
    return at + len(text)
