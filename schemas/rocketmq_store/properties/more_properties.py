"""The properties of messages that have no column of their own, as a text like the record's: name 0x01 value 0x02 …

In such a text, each name occurs once, and no name or value is empty.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java.strings import is_utf8, unchecked_string_array
from filtering.numba_compile import compiled
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.segments import SLACK
from schemas.rocketmq_store.gather import Bytes, Offsets, Positions
from schemas.rocketmq_store.properties.property_text import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    find,
    is_name,
    split,
)

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
    return unchecked_string_array(*gather.spans(values, starts, lengths), missing)


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
