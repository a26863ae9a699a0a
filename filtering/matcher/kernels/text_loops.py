"""Texts found in a hash table, and entries of maps by their key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filtering.matcher.kernels.numba_compile import compiled, load_word

Array = npt.NDArray[Any]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER_ODD = np.uint64(0xC2B2AE3D27D4EB4F)
EMPTY = -1


@compiled
def first_word(octets: Array, start: int, length: int) -> np.uint64:
    """The first 8 octets of a text; zeros follow a shorter one."""
    if length >= 8:
        return load_word(octets, start)
    if start + 8 <= len(octets):
        return load_word(octets, start) & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(length):
        word |= np.uint64(octets[start + i]) << np.uint64(8 * i)
    return word


@compiled
def last_word(octets: Array, start: int, length: int) -> np.uint64:
    return load_word(octets, start + length - 8) if length > 8 else np.uint64(0)


@compiled
def hash_text(octets: Array, start: int, length: int, first: np.uint64, last: np.uint64) -> np.uint64:
    mixed = (first ^ (last * _OTHER_ODD + np.uint64(length))) * _ODD
    for at in range(start + 8, start + length - 8, 8):
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ load_word(octets, at)) * _ODD
    return mixed ^ (mixed >> np.uint64(32))


@compiled
def same_middle(octets: Array, start: int, others: Array, other_start: int, length: int) -> bool:
    for at in range(8, length - 8, 8):
        if load_word(octets, start + at) != load_word(others, other_start + at):
            return False
    return True


@compiled
def fill_table(octets: Array, offsets: Array, table: Array, hashes: Array) -> None:
    """Puts the number of each text into ``table``, a power of two of slots, at the first free slot from its hash."""
    for text in range(len(offsets) - 1):
        start, length = np.int64(offsets[text]), np.int64(offsets[text + 1] - offsets[text])
        hashes[text] = hash_text(
            octets, start, length, first_word(octets, start, length), last_word(octets, start, length)
        )
        slot = np.int64(hashes[text] & np.uint64(len(table) - 1))
        while table[slot] != EMPTY:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = text


@compiled
def find(
    octets: Array,
    offsets: Array,
    validity: Array,
    first_bit: int,
    positions: Array,
    known_octets: Array,
    known_offsets: Array,
    table: Array,
    hashes: Array,
    found: Array,
) -> None:
    known = len(known_offsets) - 1
    for row in range(len(found)):
        at = np.int64(positions[row]) if len(positions) else row
        if at < 0 or (len(validity) and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            found[row] = known + 1
            continue
        start = np.int64(offsets[at])
        length = np.int64(offsets[at + 1]) - start
        first, last = first_word(octets, start, length), last_word(octets, start, length)
        hashed = hash_text(octets, start, length, first, last)
        slot = np.int64(hashed & np.uint64(len(table) - 1))
        found[row] = known
        while table[slot] != EMPTY:
            text = np.int64(table[slot])
            if hashes[text] == hashed:
                known_start = np.int64(known_offsets[text])
                known_length = np.int64(known_offsets[text + 1]) - known_start
                if (
                    known_length == length
                    and first_word(known_octets, known_start, length) == first
                    and last_word(known_octets, known_start, length) == last
                    and same_middle(octets, start, known_octets, known_start, length)
                ):
                    found[row] = text
                    break
            slot = (slot + 1) & (len(table) - 1)


@compiled
def pivot(which: Array, offsets: Array, positions: Array) -> None:
    names = len(positions)
    for row in range(len(offsets) - 1):
        for name in range(names):
            positions[name, row] = -1
        for entry in range(offsets[row], offsets[row + 1]):
            if which[entry] < names:
                positions[which[entry], row] = entry
