"""Loops over texts: which of some texts each is, which search texts it contains, and its Java hash.

Texts are UTF-8 octets with offsets, as in Arrow. They are read a block at a time, as words of their first 8 octets:
loops over a block of words have no branches, so that LLVM turns them into vector instructions.

To find a text among few short ones, it is compared with all of them (find_few). Among many it is found in a hash table,
by its length and its first and last 8 octets, which identify a text of up to 16 octets; of longer ones, the middle is
compared, too (find). ``search`` runs the SearchAutomaton. ``pivot`` finds the entries of maps by their key.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import KEPT, load_word, lowest_one

Texts: TypeAlias = tuple[Array, Array, Array, Int, Array]
"""A column of texts: octets, offsets, validity bits, the position of the first text's validity bit, and positions.

Row i is text ``positions[i]``, or missing if that is negative. Without positions, row i is text i. Without validity
bits, no text is missing.
"""
BLOCK = 256
"""Rows in a block."""
MISSING = -1
"""The length of a missing text."""


@compiled
def load_texts(texts: Texts, first: Int, lengths: Array, words: Array) -> None:
    """The lengths of the texts of rows ``first`` and following, and their first 8 octets.

    The length of a missing text is MISSING. What follows a shorter text in its word is undefined.
    """
    octets, offsets, validity, first_bit, positions = texts
    has_positions, has_nulls = len(positions) > 0, len(validity) > 0
    for i in range(len(words)):
        at = np.int64(positions[first + i]) if has_positions else first + i
        if at < 0 or (has_nulls and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            lengths[i], words[i] = MISSING, 0
            continue
        start = np.int64(offsets[at])
        lengths[i] = np.int64(offsets[at + 1]) - start
        words[i] = first_octets(octets, start)


@compiled
def first_octets(octets: Array, start: Int) -> Int:
    """The next 8 octets as a word; zeros follow the last octet."""
    if start + 8 <= len(octets):
        return load_word(octets, start)
    word = np.uint64(0)
    for i in range(len(octets) - start):
        word |= np.uint64(octets[start + i]) << np.uint64(8 * i)
    return word


SLOT = np.dtype(
    {
        "names": ["first", "last", "length", "text", "goes_on"],
        "formats": [np.uint64, np.uint64, np.int32, np.int32, np.int64],
    },
    align=True,
)
"""The first and last word, the length and the number of a text. ``goes_on`` is 1 if this slot and the next one are
used: then the next one may have a text with the same hash."""
EMPTY = -1
_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LAST_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_ALL = np.uint64(2**64 - 1)


@compiled
def first_word(octets: Array, start: Int, length: Int) -> Int:
    """The first 8 octets of a text. A shorter text is followed by zeros."""
    return first_octets(octets, start) & KEPT[min(length, 8)]


@compiled
def last_word(octets: Array, start: Int, length: Int) -> Int:
    """The last 8 octets of a text; 0 if it has no more than 8."""
    return load_word(octets, start + length - 8) if length > 8 else np.uint64(0)


@compiled
def hash_text(octets: Array, start: Int, length: Int, first: Int, last: Int) -> Int:
    """A hash (uint64) of a text whose first and last words are ``first`` and ``last``."""
    mixed = (first ^ (last * _LAST_FACTOR + np.uint64(length))) * _FIRST_FACTOR
    if length > 16:
        for at in range(start + 8, start + length - 8, 8):
            mixed = (mixed ^ (mixed >> np.uint64(29)) ^ load_word(octets, at)) * _FIRST_FACTOR
    return mixed ^ (mixed >> np.uint64(32))


@compiled
def same_middle(octets: Array, start: Int, others: Array, other_start: Int, length: Int) -> bool:
    """Whether two texts of one length are the same between their first and last 8 octets."""
    different = np.uint64(0)
    for at in range(8, length - 8, 8):
        different |= load_word(octets, start + at) ^ load_word(others, other_start + at)
    return bool(different == 0)


@compiled
def fill_table(octets: Array, offsets: Array, table: Array) -> None:
    """Puts each text into the first empty slot from its hash on. The size of ``table`` must be a power of two."""
    for text in range(len(offsets) - 1):
        start, length = np.int64(offsets[text]), np.int64(offsets[text + 1] - offsets[text])
        first, last = first_word(octets, start, length), last_word(octets, start, length)
        slot = np.int64(hash_text(octets, start, length, first, last) & np.uint64(len(table) - 1))
        while table[slot].length != EMPTY:
            slot = (slot + 1) & (len(table) - 1)
        table[slot].first, table[slot].last = first, last
        table[slot].length, table[slot].text = length, text
    used = table["length"] != EMPTY
    for i in range(len(table)):
        table[i].goes_on = 1 if used[i] and used[(i + 1) & (len(table) - 1)] else 0


@compiled
def find(
    texts: Texts,
    known_octets: Array,
    known_offsets: Array,
    table: Array,
    answers: Array,
    unknown: Int,
    missing: Int,
    result: Array,
) -> None:
    """result[i] is the answer of text i in ``table``, or ``unknown``, or ``missing``.

    ``answers``: for each slot, ``unknown`` and the answer of its text. To read one of both takes no branch on whether
    the text is known, which the processor could not predict.
    """
    octets, offsets, validity, first_bit, positions = texts
    known = len(known_offsets) - 1
    has_positions, has_nulls = len(positions) > 0, len(validity) > 0
    for row in range(len(result)):
        at = np.int64(positions[row]) if has_positions else row
        if at < 0 or (has_nulls and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            result[row] = missing
            continue
        if known == 0:
            result[row] = unknown
            continue
        start = np.int64(offsets[at])
        length = np.int64(offsets[at + 1]) - start
        first, last = first_word(octets, start, length), last_word(octets, start, length)
        slot = np.int64(hash_text(octets, start, length, first, last) & np.uint64(len(table) - 1))
        same = (table[slot].first == first) & (table[slot].last == last) & (table[slot].length == length)
        if length > 16 and same:
            same = same_middle(octets, start, known_octets, known_offsets[table[slot].text], length)
        # If this were one loop, or compared in a function, texts in their first slot would take twice as long.
        if table[slot].goes_on:
            while not same and table[slot].goes_on:
                slot = np.int64((slot + 1) & (len(table) - 1))
                same = (table[slot].first == first) & (table[slot].last == last) & (table[slot].length == length)
                if length > 16 and same:
                    same = same_middle(octets, start, known_octets, known_offsets[table[slot].text], length)
        result[row] = answers[np.uint64(2 * slot) + np.uint64(same)]


@compiled
def clear_rest(words: Array, lengths: Array) -> None:
    """Clears what follows each text in its word."""
    for i in range(len(words)):
        kept = _ALL >> np.uint64(64 - 8 * max(1, min(8, lengths[i])))
        words[i] &= kept if lengths[i] > 0 else np.uint64(0)


@compiled
def choose(words: Array, lengths: Array, word: Int, length: Int, answer: Int, result: Array) -> None:
    """Writes the answer to ``result`` for each text of up to 8 octets that is the known one."""
    for i in range(len(words)):
        result[i] = answer if (words[i] == word) & (lengths[i] == length) else result[i]


@compiled
def find_few(
    texts: Texts,
    known_words: Array,
    known_lengths: Array,
    answers: Array,
    unknown: Int,
    missing: Int,
    result: Array,
) -> None:
    """Like find, but compares each text with all of a few known texts of up to 8 octets, without a branch."""
    all_words, all_lengths = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int64)
    for first in range(0, len(result), BLOCK):
        end = min(first + BLOCK, len(result))
        words, lengths, block = all_words[: end - first], all_lengths[: end - first], result[first:end]
        load_texts(texts, first, lengths, words)
        clear_rest(words, lengths)
        block[:] = unknown
        for known in range(len(known_words)):
            choose(words, lengths, known_words[known], known_lengths[known], answers[known], block)
        for i in range(len(block)):
            block[i] = missing if lengths[i] == MISSING else block[i]


@compiled
def pivot(name_of: Array, offsets: Array, positions: Array) -> None:
    """The loop of kernels.pivot. ``positions``: int32, shape (names, rows)."""
    names = len(positions)
    for row in range(len(offsets) - 1):
        for name in range(names):
            positions[name, row] = -1
        for entry in range(offsets[row], offsets[row + 1]):
            if name_of[entry] < names:
                positions[name_of[entry], row] = entry


# Many search texts at once: in texts, and from these for messages.


@compiled
def search(
    texts: Texts,
    rows: Int,
    is_backwards: bool,
    classes: Array,
    steps: Array,
    width: Int,
    root: Int,
    dead: Int,
    first_end: Int,
    next_end: Array,
    bounds: Array,
    end_texts: Array,
    rests: Array,
    rest_offsets: Array,
    bits: Array,
) -> None:
    """Sets bit i of row s of ``bits`` if the leaf of search text s is true for row i of ``texts``: see SearchAutomaton.

    ``rows``: the number of rows of ``texts``. ``bits`` must be all zeros.
    """
    octets, offsets, validity, first_bit, positions = texts
    direction = -1 if is_backwards else 1
    for row in range(rows):
        at = np.int64(positions[row]) if len(positions) > 0 else row
        if at < 0 or (len(validity) > 0 and not (validity[(at + first_bit) >> 3] >> ((at + first_bit) & 7)) & 1):
            continue
        left = np.int64(offsets[at + 1]) - np.int64(offsets[at])
        octet = np.int64(offsets[at + 1]) - 1 if is_backwards else np.int64(offsets[at])
        state = np.int64(root)
        while state != dead:
            end = (state - first_end) // width if state >= first_end else -1
            while end >= 0:
                for i in range(bounds[end], bounds[end + 1]):
                    text = np.int64(end_texts[i])
                    rest = rests[rest_offsets[text] : rest_offsets[text + 1]]
                    if len(rest) <= left and follows(octets, octet, direction, rest):
                        bits[text, row >> 6] |= np.uint64(1) << np.uint64(row & 63)
                end = np.int64(next_end[end])
            if left == 0:
                break
            state = np.int64(steps[state + classes[octets[octet]]])
            octet += direction
            left -= 1


@compiled
def follows(octets: Array, at: Int, direction: Int, rest: Array) -> bool:
    """Whether ``rest`` is in ``octets`` from ``at`` on, in this direction."""
    for i in range(len(rest)):  # noqa: SIM110  Numba is slow on all()
        if octets[at + direction * i] != rest[i]:
            return False
    return True


@compiled
def spread(text_bits: Array, texts: Int, positions: Array, bits: Array) -> None:
    """Sets bit i of row s of ``bits`` if bit positions[i] of row s of ``text_bits`` is set: 64 rows at a time.

    ``texts``: the number of texts. A negative position has no bit. ``bits`` must be all zeros.
    """
    rows_of_text = np.zeros(texts, np.uint64)
    for first in range(0, len(text_bits), 64):
        rows_of_text[:] = 0
        for row in range(first, min(first + 64, len(text_bits))):
            for word in range(text_bits.shape[1]):
                left = text_bits[row, word]
                while left:
                    rows_of_text[(word << 6) + lowest_one(left)] |= np.uint64(1) << np.uint64(row - first)
                    left &= left - np.uint64(1)
        for i in range(len(positions)):
            left = rows_of_text[positions[i]] if positions[i] >= 0 else np.uint64(0)
            while left:
                bits[first + lowest_one(left), i >> 6] |= np.uint64(1) << np.uint64(i & 63)
                left &= left - np.uint64(1)


# Hashes, for :mod:`filtering.tags_code`.


@compiled
def hash_texts(data: Array, bounds: Array, hashes: Array) -> None:
    """hashes[i] becomes String.hashCode of the text data[bounds[i]:bounds[i + 1]], which is UTF-8.

    A character of one to three bytes is one unit of UTF-16, a character of four bytes is two.
    """
    for row in range(len(hashes)):
        value = np.uint32(0)
        at, end = bounds[row], bounds[row + 1]
        while at < end:
            first = np.uint32(data[at])
            if first < 0x80:
                unit = first
                at += 1
            elif first < 0xE0:
                unit = (first & np.uint32(0x1F)) << np.uint32(6) | _continuation(data, at + 1)
                at += 2
            elif first < 0xF0:
                unit = (first & np.uint32(0x0F)) << np.uint32(12) | _continuation(data, at + 1) << np.uint32(6)
                unit |= _continuation(data, at + 2)
                at += 3
            else:
                point = (first & np.uint32(0x07)) << np.uint32(18) | _continuation(data, at + 1) << np.uint32(12)
                point |= _continuation(data, at + 2) << np.uint32(6) | _continuation(data, at + 3)
                point -= np.uint32(0x10000)
                value = np.uint32(value * np.uint32(31)) + (np.uint32(0xD800) | point >> np.uint32(10))
                unit = np.uint32(0xDC00) | (point & np.uint32(0x3FF))
                at += 4
            value = np.uint32(np.uint32(value * np.uint32(31)) + unit)
        hashes[row] = np.int32(value)


@compiled
def _continuation(data: Array, at: int) -> np.uint32:
    return np.uint32(data[at]) & np.uint32(0x3F)
