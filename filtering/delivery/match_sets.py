"""Sets of pull windows that received the same entries of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.delivery.entries import Int64s
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
