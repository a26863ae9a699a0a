"""Which filters let which messages of a run through, kept once for all filters that let the same ones through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.replay import bit_planes
from filtering.replay.bit_planes import Words

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Delivered:
    """Filters (by number) that let the same ``count`` messages of a run of ``rows`` through, as packed bits."""

    filters: tuple[int, ...]
    bits: Words
    count: int
    rows: int

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        """Which messages of the run, ascending."""
        return np.flatnonzero(bit_planes.unpack(self.bits, self.rows)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class DeliveredSets:
    """Many Delivered of one run of ``rows`` messages, in columns.

    Set s has the filters ``filters[starts[s]:starts[s + 1]]``, and those ``counts[s]`` messages whose bits
    are set in ``bits[chosen[s]]``. No set is without filters.
    """

    filters: Int64s
    starts: Int64s
    bits: Words
    chosen: Int64s
    counts: Int64s
    rows: int

    @classmethod
    def of(cls, sets: Sequence[Delivered], rows: int) -> DeliveredSets:
        return cls(
            np.array([i for each in sets for i in each.filters], np.int64),
            np.cumsum([0, *(len(each.filters) for each in sets)]),
            np.array([each.bits for each in sets], np.uint64).reshape(len(sets), bit_planes.words(rows)),
            np.arange(len(sets)),
            np.array([each.count for each in sets], np.int64),
            rows,
        )

    def __len__(self) -> int:
        return len(self.chosen)

    def __iter__(self) -> Iterator[Delivered]:
        of_sets = np.split(self.filters, self.starts[1:-1]) if len(self) else []
        for filters, chosen, count in zip(of_sets, self.chosen, self.counts.tolist(), strict=True):
            yield Delivered(tuple(filters.tolist()), self.bits[chosen], count, self.rows)


class Sharing:
    """Collects what each filter let through; most let through what some row of ``bits`` says."""

    def __init__(self, bits: Words, counts: Int64s, rows: int) -> None:
        """``counts``: the bits that are set in each row of ``bits``."""
        self._bits, self._counts, self._rows = bits, counts, rows
        self._filters = [np.empty(0, np.int64)]
        self._chosen = [np.empty(0, np.int64)]
        self._others: dict[bytes, int] = {}
        self._counts_of_others: list[int] = []

    def add_rows(self, filters: Int64s, chosen: Int64s) -> None:
        """Filter filters[i] let through what row chosen[i] says."""
        self._filters.append(filters)
        self._chosen.append(chosen)

    def add_bits(self, message_filter: int, bits: Words, count: int) -> None:
        number = self._others.setdefault(bits.tobytes(), len(self._others))
        if number == len(self._counts_of_others):
            self._counts_of_others.append(count)
        self.add_rows(np.array([message_filter]), np.array([len(self._bits) + number]))

    def sets(self) -> DeliveredSets:
        filters, chosen = np.concatenate(self._filters), np.concatenate(self._chosen)
        order = np.argsort(chosen, kind="stable")
        distinct, starts = np.unique(chosen[order], return_index=True)
        bits, counts = self._bits, self._counts
        if self._others:
            others = np.frombuffer(b"".join(self._others), np.uint64).reshape(len(self._others), -1)
            bits, counts = np.concatenate([bits, others]), np.append(counts, self._counts_of_others)
        return DeliveredSets(
            filters[order], np.append(starts, len(filters)), bits, distinct, counts[distinct], self._rows
        )
