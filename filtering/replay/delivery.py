"""A pull's three filters over a run of consume queue entries of one queue, for all groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher import Matcher, Matches
from filtering.predicate import FALSE, TRUE, Predicate
from filtering.replay import bit_planes
from filtering.replay.bit_planes import Words
from filtering.replay.message_filter import MessageFilter

FILTERS_AT_ONCE = 512
EMPTY_PROPERTIES = pa.map_(pa.string(), pa.string())
Counts = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Delivered:
    """Groups (indices of filters) to which the same ``count`` messages of a run of ``rows`` went, as packed bits."""

    filters: tuple[int, ...]
    bits: Words
    count: int
    rows: int

    @property
    def positions(self) -> Positions:
        """Which messages of the run, ascending."""
        return np.flatnonzero(bit_planes.unpack(self.bits, self.rows)).astype(np.int32)


@dataclass(frozen=True)
class Outcome:
    """What the filters did with a run of n entries; counts have shape (filters,)."""

    delivered: list[Delivered]
    dropped_by_client: list[Delivered]
    dropped_by_hook: list[Delivered]
    passed_stage1: Counts
    passed_stage2: Counts
    delivered_count: Counts
    dropped_by_hook_count: Counts
    bit_map_false_positives: Counts
    evaluation_errors: Counts


class Delivery:
    """The message filters of one topic's groups, compiled. Picklable, so that Spark can send it to its workers."""

    def __init__(self, filters: Sequence[MessageFilter], bit_num: int) -> None:
        """``bit_num``: bits of a filter bit map as the broker is configured; others are not used."""
        self.filters = list(filters)
        self._bit_num = bit_num
        roles = [(f.tags, f.expression, f.client_tags, f.failure) for f in self.filters]
        predicates = list(dict.fromkeys(p for role in roles for p in role if p not in (TRUE, FALSE)))
        index: dict[Predicate, int] = {p: i for i, p in enumerate([*predicates, TRUE, FALSE])}
        self._true = index[TRUE]
        self._matcher = Matcher(predicates)
        columns = np.array([[index[p] for p in role] for role in roles], np.int64).reshape(-1, 4).T
        self._tags, self._expression, self._client_tags, self._failure = columns
        self._uses_bit_map = np.array([bool(f.bit_pos) for f in self.filters], bool)
        self._born_time = np.array([f.born_time for f in self.filters], np.int64)
        self._bit_pos = np.zeros((len(self.filters), max((len(f.bit_pos) for f in self.filters), default=0)), np.int64)
        for i, message_filter in enumerate(self.filters):
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
        role_counts = np.append(matches.counts(), (rows, 0))
        expression_only = (self._tags == self._true) & (self._client_tags == self._true) & ~self._uses_bit_map
        passed_stage1 = np.full(len(self.filters), rows, np.int64)
        passed_stage2 = role_counts[self._expression]
        delivered_count = passed_stage2.copy()
        false_positives = np.zeros(len(self.filters), np.int64)
        errors = role_counts[self._failure]
        delivered = _Sharing(matches, role_counts)
        dropped = _Sharing(matches, role_counts)
        for i in np.flatnonzero(expression_only & (delivered_count > 0)).tolist():
            delivered.add_predicate(i, int(self._expression[i]))

        others = np.flatnonzero(~expression_only)
        if len(others):
            bits = _with_constants(matches)
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
            for at, i in enumerate(chunk.tolist()):
                if delivered_count[i] == 0:
                    continue
                # The delivered messages are a subset of each role's: as many are the same ones.
                same = (
                    r
                    for r in (self._expression[i], self._tags[i], self._client_tags[i])
                    if role_counts[r] == delivered_count[i]
                )
                role = next(same, None)
                if role is None:
                    delivered.add_bits(i, received[at], int(delivered_count[i]))
                else:
                    delivered.add_predicate(i, int(role))
            for at in np.flatnonzero(passed_stage2[chunk] > delivered_count[chunk]).tolist():
                i = int(chunk[at])
                dropped.add_bits(i, stage2[at] & ~received[at], int(passed_stage2[i] - delivered_count[i]))
        return Outcome(
            delivered.shared(),
            dropped.shared(),
            [],
            passed_stage1,
            passed_stage2,
            delivered_count,
            np.zeros(len(self.filters), np.int64),
            false_positives,
            errors,
        )

    def stage1(
        self, tags_codes: pa.Int64Array, store_timestamps: npt.NDArray[np.int64], bit_maps: pa.BinaryArray
    ) -> Words:
        """Which entries pass on the consume queue alone: packed bits, shape (filters, words)."""
        rows = len(store_timestamps)
        bits = _with_constants(self._matcher.match(pa.nulls(rows, EMPTY_PROPERTIES), tags_codes))
        planes, readable = bit_planes.from_bit_maps(bit_maps, self._bit_num)
        every = np.arange(len(self.filters))
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


class _Sharing:
    """Collects filters that let the same messages through."""

    def __init__(self, matches: Matches, counts: Counts) -> None:
        """``counts``: of the predicates of ``matches``, then of TRUE."""
        self._matches, self._counts = matches, counts
        self._by_predicate: dict[int, list[int]] = {}
        self._by_bits: dict[bytes, tuple[int, list[int]]] = {}

    def add_predicate(self, message_filter: int, predicate: int) -> None:
        self._by_predicate.setdefault(predicate, []).append(message_filter)

    def add_bits(self, message_filter: int, bits: Words, count: int) -> None:
        self._by_bits.setdefault(bits.tobytes(), (count, []))[1].append(message_filter)

    def shared(self) -> list[Delivered]:
        rows, of_predicates = self._matches.rows, list(self._matches.bits)
        every = bit_planes.ones(rows)
        counts = self._counts.tolist()
        by_predicate = [
            Delivered(
                tuple(filters),
                of_predicates[predicate] if predicate < len(of_predicates) else every,
                counts[predicate],
                rows,
            )
            for predicate, filters in self._by_predicate.items()
        ]
        by_bits = [
            Delivered(tuple(filters), np.frombuffer(bits, np.uint64), count, rows)
            for bits, (count, filters) in self._by_bits.items()
        ]
        return by_predicate + by_bits


def _with_constants(matches: Matches) -> Words:
    """The bits of TRUE and FALSE after those of the predicates."""
    constants = np.zeros((2, matches.bits.shape[1]), np.uint64)
    constants[0] = bit_planes.ones(matches.rows)
    return np.concatenate([matches.bits, constants])
