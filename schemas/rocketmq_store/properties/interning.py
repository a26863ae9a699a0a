"""Numbers the texts of a log, such as topics, in the order of their first appearance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from filtering.matcher.kernels.text_loops import hash_text, same_middle
from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import Array, Int, compiled
from schemas.rocketmq_store.gather import Bytes

Numbers = NDArray[np.int32]
Positions = NDArray[np.int32] | NDArray[np.int64]
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

    def numbers(self, log: Bytes, starts: Positions, lengths: Positions) -> Numbers | None:
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
        mixed = (first ^ (last * _LAST_FACTOR + np.uint64(length))) * _FIRST_FACTOR
        firsts[i], lasts[i] = first, last
        slots[i] = (mixed ^ (mixed >> np.uint64(32))) & mask


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
