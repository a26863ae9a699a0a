"""Splits the properties of a log's messages into the columns of ``commitlog``, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.java.strings import decode_utf8, unchecked_string_array
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.segments import SLACK
from schemas.rocketmq_store.properties.more_properties import more_properties
from schemas.rocketmq_store.properties.property_slots import NAME_BYTES, find_pairs
from schemas.rocketmq_store.properties.property_values import PropertyValues, Texts

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
        log: gather.Bytes,
        starts: gather.Positions,
        lengths: gather.Positions,
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
            properties = self._cut(*gather.decoded_texts(*texts), topic_codes, used_before)
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
        log: gather.Bytes,
        starts: gather.Positions,
        lengths: gather.Positions,
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
        log: gather.Bytes,
        starts: gather.Positions,
        lengths: gather.Positions,
        topic_codes: NDArray[np.int32],
        overflow: NDArray[np.bool_],
    ) -> pa.StringArray | None:
        """The properties without a slot of rows with ``overflow``; None if some name or value is not UTF-8."""
        found = more_properties(
            log, starts[overflow], lengths[overflow], topic_codes[overflow], self._names, self._lengths, self._used
        )
        if found is None:
            return None
        offsets, data = found
        sizes = np.zeros(len(starts) + 1, np.int32)
        sizes[1:][overflow] = np.diff(offsets)
        return unchecked_string_array(np.cumsum(sizes, dtype=np.int32), data, ~overflow)
