"""Sets of pull windows that received the same entries of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.delivery.entries import Int32s, Int64s
from filtering.matcher import packed_bits
from filtering.matcher.packed_bits import Words


@dataclass(frozen=True, eq=False)
class MatchSet:
    """Windows (by number) that received the same ``count`` entries of a block of ``rows``, as packed bits."""

    windows: tuple[int, ...]
    bits: Words
    count: int
    rows: int

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        """The positions of the entries in the block, ascending."""
        return np.flatnonzero(packed_bits.unpack(self.bits, self.rows)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class MatchSets:
    """Many MatchSets of one block of ``rows`` entries, in columns.

    Set s has the windows ``windows[starts[s]:starts[s + 1]]``, at least one, and those ``counts[s]`` entries whose
    bits are set in ``bits[chosen[s]]``.
    """

    windows: Int64s
    starts: Int64s
    bits: Words
    chosen: Int64s
    counts: Int64s
    rows: int

    @classmethod
    def of(cls, sets: Sequence[MatchSet], rows: int) -> MatchSets:
        """The columns of some sets of a block of ``rows`` entries."""
        return cls(
            np.array([window for match_set in sets for window in match_set.windows], np.int64),
            np.cumsum([0, *(len(match_set.windows) for match_set in sets)]),
            np.array([match_set.bits for match_set in sets], np.uint64).reshape(len(sets), packed_bits.words(rows)),
            np.arange(len(sets)),
            np.array([match_set.count for match_set in sets], np.int64),
            rows,
        )

    @classmethod
    def shared(cls, windows: Int64s, chosen: Int64s, bits: Words, counts: Int64s, rows: int) -> MatchSets:
        """Window windows[i] received the entries of ``bits[chosen[i]]``. Row j has counts[j] bits set."""
        order = np.argsort(chosen, kind="stable")
        distinct, starts = np.unique(chosen[order], return_index=True)
        return cls(windows[order], np.append(starts, len(windows)), bits, distinct, counts[distinct], rows)

    def flags(self, window_count: int) -> npt.NDArray[np.bool_]:
        """The entries that each window received, shape (window_count, rows)."""
        flags = np.zeros((window_count, self.rows), bool)
        for match_set in self:
            flags[list(match_set.windows)] |= packed_bits.unpack(match_set.bits, self.rows)
        return flags

    def __len__(self) -> int:
        return len(self.chosen)

    def __iter__(self) -> Iterator[MatchSet]:
        window_sets = np.split(self.windows, self.starts[1:-1]) if len(self) else []
        for windows, chosen, count in zip(window_sets, self.chosen, self.counts.tolist(), strict=True):
            yield MatchSet(tuple(windows.tolist()), self.bits[chosen], count, self.rows)


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Distinct rows of bits: ``windows[i]`` has row ``bits[chosen[i]]``, with ``counts[chosen[i]]`` set bits."""

    windows: Int64s
    chosen: Int64s
    bits: Words
    counts: Int64s


def distinct_rows(parts: list[tuple[Int32s, Words]]) -> DistinctRows:
    """The distinct rows of some ``parts``: each has the numbers of windows, and a row of bits for each of them."""
    windows = np.concatenate([np.empty(0, np.int64), *(numbers for numbers, _ in parts)])
    number_of: dict[bytes, int] = {}
    chosen, kept = [], []
    for _, rows in parts:
        for row in rows:
            known = len(number_of)
            number = number_of.setdefault(row.tobytes(), known)
            if number == known:
                kept.append(row)
            chosen.append(number)
    width = parts[0][1].shape[1] if parts else 0
    bits = np.array(kept, np.uint64).reshape(len(kept), width)
    return DistinctRows(windows, np.array(chosen, np.int64), bits, np.bitwise_count(bits).sum(axis=1, dtype=np.int64))


def distinct_match_sets(parts: list[tuple[Int32s, Words]], rows: int) -> MatchSets:
    """The windows of :func:`distinct_rows` as sets. ``rows``: the number of entries of the block."""
    distinct = distinct_rows(parts)
    return MatchSets.shared(distinct.windows, distinct.chosen, distinct.bits, distinct.counts, rows)
