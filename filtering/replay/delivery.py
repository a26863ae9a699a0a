"""A pull's three filters over a run of consume queue entries of one queue, for all groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher import Matcher
from filtering.predicate import TRUE, Predicate
from filtering.replay import bit_planes
from filtering.replay.bit_planes import Words
from filtering.replay.delivered_sets import DeliveredSets, Sharing
from filtering.replay.message_filter import MessageFilter

FILTERS_AT_ONCE = 512
EMPTY_PROPERTIES = pa.map_(pa.string(), pa.string())
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """What the filters did with a run of n entries; counts have shape (filters,)."""

    delivered: DeliveredSets
    dropped_by_client: DeliveredSets
    dropped_by_hook: DeliveredSets
    passed_stage1: Counts
    passed_stage2: Counts
    delivered_count: Counts
    dropped_by_hook_count: Counts
    bit_map_false_positives: Counts
    evaluation_errors: Counts


class Delivery:
    """The message filters of one topic's groups, compiled. Picklable, so that Spark can send it to its workers.

    Filters have numbers in the order of ``consumer_groups``.
    """

    def __init__(self, filters: Sequence[MessageFilter], bit_num: int) -> None:
        """``bit_num``: bits of a filter bit map as the broker is configured; others are not used."""
        self.consumer_groups = tuple(f.consumer_group for f in filters)
        self._bit_num = bit_num
        roles = [(f.tags, f.expression, f.client_tags, f.failure) for f in filters]
        predicates = list(dict.fromkeys([TRUE, *(p for role in roles for p in role)]))
        index: dict[Predicate, int] = {p: i for i, p in enumerate(predicates)}
        self._true = index[TRUE]
        self._matcher = Matcher(predicates)
        columns = np.array([[index[p] for p in role] for role in roles], np.int64).reshape(-1, 4).T
        self._tags, self._expression, self._client_tags, self._failure = columns
        self._uses_bit_map = np.array([bool(f.bit_pos) for f in filters], bool)
        self._born_time = np.array([f.born_time for f in filters], np.int64)
        self._bit_pos = np.zeros((len(filters), max((len(f.bit_pos) for f in filters), default=0)), np.int64)
        for i, message_filter in enumerate(filters):
            if message_filter.bit_pos:
                self._bit_pos[i] = message_filter.bit_pos

    def run(
        self,
        properties: pa.Array,
        tags_codes: pa.Int64Array,
        store_timestamps: npt.NDArray[np.int64],
        bit_maps: pa.BinaryArray,
    ) -> Outcome:
        """What happens to each of n consume queue entries, in order.

        ``properties``: what Matcher.match takes; ``store_timestamps``: ms; ``bit_maps``: binary, nulls allowed.
        """
        rows = len(store_timestamps)
        matches = self._matcher.match(properties, tags_codes)
        bits, role_counts = matches.bits, matches.counts()
        expression_only = (self._tags == self._true) & (self._client_tags == self._true) & ~self._uses_bit_map
        passed_stage1 = np.full(len(self.consumer_groups), rows, np.int64)
        passed_stage2 = role_counts[self._expression]
        delivered_count = passed_stage2.copy()
        false_positives = np.zeros(len(self.consumer_groups), np.int64)
        errors = role_counts[self._failure]
        delivered = Sharing(bits, role_counts, rows)
        dropped = Sharing(bits[:0], role_counts[:0], rows)
        receiving = np.flatnonzero(expression_only & (delivered_count > 0))
        delivered.add_rows(receiving, self._expression[receiving])

        others = np.flatnonzero(~expression_only)
        if len(others):
            planes, readable = bit_planes.from_bit_maps(bit_maps, self._bit_num)
        for start in range(0, len(others), FILTERS_AT_ONCE):
            chunk = others[start : start + FILTERS_AT_ONCE]
            expression = bits[self._expression[chunk]]
            by_bit_map = self._held_against_bit_map(chunk, store_timestamps, readable)
            stage1 = self._stage1(chunk, bits, planes, by_bit_map)
            stage2 = stage1 & expression
            received = stage2 & bits[self._client_tags[chunk]]
            passed_stage1[chunk] = bit_planes.count(stage1)
            passed_stage2[chunk] = bit_planes.count(stage2)
            delivered_count[chunk] = bit_planes.count(received)
            false_positives[chunk] = bit_planes.count(stage1 & by_bit_map & ~expression)
            errors[chunk] = bit_planes.count(stage1 & bits[self._failure[chunk]])
            # The delivered messages are a subset of each role's: as many are the same ones.
            roles = np.stack([self._expression[chunk], self._tags[chunk], self._client_tags[chunk]])
            same = role_counts[roles] == delivered_count[chunk]
            role = roles[same.argmax(axis=0), np.arange(len(chunk))]
            of_role = same.any(axis=0) & (delivered_count[chunk] > 0)
            delivered.add_rows(chunk[of_role], role[of_role])
            for at in np.flatnonzero(~of_role & (delivered_count[chunk] > 0)).tolist():
                delivered.add_bits(int(chunk[at]), received[at], int(delivered_count[chunk[at]]))
            lost = passed_stage2[chunk] - delivered_count[chunk]
            for at in np.flatnonzero(lost).tolist():
                dropped.add_bits(int(chunk[at]), stage2[at] & ~received[at], int(lost[at]))
        return Outcome(
            delivered.sets(),
            dropped.sets(),
            DeliveredSets.of([], rows),
            passed_stage1,
            passed_stage2,
            delivered_count,
            np.zeros(len(self.consumer_groups), np.int64),
            false_positives,
            errors,
        )

    def stage1(
        self, tags_codes: pa.Int64Array, store_timestamps: npt.NDArray[np.int64], bit_maps: pa.BinaryArray
    ) -> Words:
        """Which entries pass on the consume queue alone: packed bits, shape (filters, words)."""
        rows = len(store_timestamps)
        bits = self._matcher.match(pa.nulls(rows, EMPTY_PROPERTIES), tags_codes).bits
        planes, readable = bit_planes.from_bit_maps(bit_maps, self._bit_num)
        every = np.arange(len(self.consumer_groups))
        return self._stage1(every, bits, planes, self._held_against_bit_map(every, store_timestamps, readable))

    def _stage1(self, chunk: npt.NDArray[np.intp], bits: Words, planes: Words, by_bit_map: Words) -> Words:
        passes: Words = bits[self._tags[chunk]] & (self._bit_map_hits(planes, chunk) | ~by_bit_map)
        return passes

    def _held_against_bit_map(
        self,
        chunk: npt.NDArray[np.intp],
        store_timestamps: npt.NDArray[np.int64],
        readable: npt.NDArray[np.bool_],
    ) -> Words:
        """Shape (chunk, words): the messages whose bit map decides, since they were stored in the group's life."""
        born, life = np.unique(self._born_time[chunk], return_inverse=True)
        in_life = bit_planes.pack((store_timestamps > born[:, None]) & readable)[life]
        in_life[~self._uses_bit_map[chunk]] = 0
        return in_life

    def _bit_map_hits(self, planes: Words, chunk: npt.NDArray[np.intp]) -> Words:
        positions = self._bit_pos[chunk]
        hits = np.full((len(chunk), planes.shape[1]), ~np.uint64(0))
        for column in positions.T:
            hits &= planes[column]
        return hits
