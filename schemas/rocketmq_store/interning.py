"""Numbers the texts of a log, such as topics, in the order of their first appearance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from filtering.java.strings import decode_utf8
from filtering.numba_compile import compiled
from schemas.rocketmq_store.octets import Bytes

Positions = NDArray[np.int64]
_EMPTY = -1
_PRIME, _BASIS = np.uint64(1099511628211), np.uint64(14695981039346656037)


class Interner:
    """Numbers texts, and remembers them from call to call. ``texts`` has them in order, decoded as Java does."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._names = np.empty(1 << 12, np.uint8)
        self._ends = np.zeros(1 << 7, np.int64)
        self._table = np.full(1 << 9, _EMPTY, np.int32)

    def codes(self, log: Bytes, starts: Positions, lengths: Positions) -> NDArray[np.int32]:
        """The number of the text at each position."""
        codes = np.empty(len(starts), np.int32)
        row = 0
        while True:
            count, row = _intern(
                log, starts, lengths, self._names, self._ends, self._table, len(self.texts), codes, row
            )
            for known in range(len(self.texts), count):
                self.texts.append(decode_utf8(self._names[self._ends[known] : self._ends[known + 1]].tobytes()))
            if row == len(starts):
                return codes
            self._grow(int(lengths[row]))

    def _grow(self, length: int) -> None:
        self._names = np.concatenate([self._names, np.empty(len(self._names) + length, np.uint8)])
        self._ends = np.concatenate([self._ends, np.zeros(len(self._ends), np.int64)])
        self._table = np.full(4 * len(self._ends), _EMPTY, np.int32)
        ends = self._ends[: len(self.texts) + 1]
        _intern(self._names, ends[:-1], np.diff(ends), *self._copies(), np.empty(len(ends) - 1, np.int32), 0)

    def _copies(self) -> tuple[Bytes, Positions, NDArray[np.int32], int]:
        """Scratch space to number the known texts again, for a table of another size."""
        return np.empty_like(self._names), np.zeros_like(self._ends), self._table, 0


@compiled
def _intern(
    log: Bytes,
    starts: Positions,
    lengths: Positions,
    names: Bytes,
    ends: Positions,
    table: NDArray[np.int32],
    count: int,
    codes: NDArray[np.int32],
    first_row: int,
) -> tuple[int, int]:
    """Returns how many texts are known now, and the row at which there was no room for another."""
    mask = np.uint64(len(table) - 1)
    for row in range(first_row, len(starts)):
        start, length = int(starts[row]), int(lengths[row])
        mixed = _BASIS
        for i in range(length):
            mixed = (mixed ^ np.uint64(log[start + i])) * _PRIME
        slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & mask)
        while table[slot] != _EMPTY and not _equal(log, start, length, names, ends, table[slot]):
            slot = np.int64((np.uint64(slot) + np.uint64(1)) & mask)
        if table[slot] == _EMPTY:
            begin = int(ends[count])
            if count + 1 >= len(ends) or begin + length > len(names):
                return count, row
            for i in range(length):
                names[begin + i] = log[start + i]
            ends[count + 1] = begin + length
            table[slot] = count
            count += 1
        codes[row] = table[slot]
    return count, len(starts)


@compiled
def _equal(log: Bytes, start: int, length: int, names: Bytes, ends: Positions, known: int) -> bool:
    begin = int(ends[known])
    if int(ends[known + 1]) - begin != length:
        return False
    for i in range(length):  # noqa: SIM110  Numba is slow on all()
        if log[start + i] != names[begin + i]:
            return False
    return True
