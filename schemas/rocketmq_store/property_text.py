"""Property texts, ``key 0x01 value 0x02 …``, cut into keys and values (MessageDecoder.string2messageProperties).

For maps; :mod:`schemas.rocketmq_store.property_columns` cuts them into columns. Most of the bytes that are read from a
log are property texts, so text is copied and searched eight bytes at a time. Properties that have no column of their
own (``more_properties``) are kept as such a text, in which each name occurs once, and no name or value is empty.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java import is_utf8, unchecked_string_array
from filtering.kernels.compile import compiled
from filtering.kernels.registers import load_word
from schemas.rocketmq_store.record_layout import Bytes, Offsets, Positions, lowest_byte, spans, store
from schemas.rocketmq_store.segments import SLACK

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
def find(
    pairs: Offsets, key_ends: Offsets, keys: Bytes, value_ends: Offsets, name: Bytes
) -> tuple[Positions, Positions, NDArray[np.bool_]]:
    """The value of the key ``name`` in each row: where it begins, its length in bytes, and whether it is missing."""
    rows = len(pairs) - 1
    starts, lengths, missing = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    for row in range(rows):
        for pair in range(pairs[row], pairs[row + 1]):
            start = key_ends[pair]
            if key_ends[pair + 1] - start == len(name) and is_name(keys[start:], name):
                starts[row] = value_ends[pair]
                lengths[row] = value_ends[pair + 1] - value_ends[pair]
                missing[row] = False
                break
    return starts, lengths, missing


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


def values_of(texts: pa.StringArray, name: str) -> pa.StringArray:
    """The value of the property ``name`` in each text; null if it is missing, or the text is null."""
    pairs, name_ends, names, value_ends, values = _split(texts)
    key = np.frombuffer(name.encode(), np.uint8)
    starts, lengths, missing = find(pairs, name_ends, names, value_ends, key)
    return unchecked_string_array(*spans(values, starts, lengths), missing)


def names_of(texts: pa.StringArray) -> tuple[NDArray[np.int64], pa.StringArray]:
    """The names of all properties in some texts, and for each name the index of its text."""
    pairs, name_ends, names, _, _ = _split(texts)
    return np.repeat(np.arange(len(texts)), np.diff(pairs)), unchecked_string_array(name_ends, names)


def _split(texts: pa.StringArray) -> tuple[Offsets, Offsets, Bytes, Offsets, Bytes]:
    """The result of property_text.split."""
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(bytes(texts.buffers()[2] or b"") + bytes(SLACK), np.uint8)
    return split(data, bounds[:-1].astype(np.int64), np.diff(bounds))


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
