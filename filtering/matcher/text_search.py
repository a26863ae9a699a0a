"""Finds many search texts in the texts of a column at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels, search_loops
from filtering.matcher.packed_bits import Words, words
from filtering.predicate import TextContains, TextEndsWith, TextStartsWith

SEARCHED = 16
"""Octets of a search text that have states: few, so that long texts need little memory."""
SearchLeaf: TypeAlias = TextContains | TextStartsWith | TextEndsWith
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TextSearch:
    """An automaton that reads each text once, octet by octet, for many leaves of one kind.

    A state is the position of a row of ``width`` elements in ``steps``: ``steps[state + classes[octet]]`` is the next
    state. At the states from ``first_end`` on, the first octets of some search texts end. End e has the texts
    ``found[bounds[e]:bounds[e + 1]]``, and those of the end ``next_end[e]`` if that is not -1. What must follow for
    text s is ``rests[rest_offsets[s]:rest_offsets[s + 1]]``.

    TextContains: a state stands for the longest end of what was read with which a search text begins (Aho and
    Corasick, "Efficient string matching", 1975). TextStartsWith: it stands for all that was read, and ``dead`` for
    anything with which no search text begins (-1: there is no such state). TextEndsWith: the same, backwards.
    """

    is_backwards: bool
    classes: Numbers
    steps: Numbers
    width: int
    root: int
    dead: int
    first_end: int
    next_end: Numbers
    bounds: Numbers
    found: Numbers
    rests: npt.NDArray[np.uint8]
    rest_offsets: Numbers

    @classmethod
    def of(cls, texts: Sequence[str], leaf: type[SearchLeaf]) -> TextSearch:
        """The automaton of the leaves of a kind that have these search texts."""
        is_backwards = leaf is TextEndsWith
        encoded = [text.encode()[:: -1 if is_backwards else 1] for text in texts]
        trie = _Trie.of(encoded)
        otherwise = 0 if leaf is TextContains else trie.add_state()
        classes = _classes(encoded)
        steps, shorter, is_end = _transitions(trie, classes, otherwise)
        states, width = steps.shape
        order = np.argsort(is_end, kind="stable")  # the states at which search texts end come last
        place = np.empty(states, np.int32)
        place[order] = np.arange(states)
        first_end = int(np.count_nonzero(~is_end))
        ends = order[first_end:].tolist()
        next_end = [place[shorter[end]] - first_end if end and is_end[shorter[end]] else -1 for end in ends]
        rests = [text[SEARCHED:] for text in encoded]
        return cls(
            is_backwards,
            classes,
            (place * width)[steps[order]].ravel(),
            width,
            int(place[0]) * width,
            int(place[otherwise]) * width if otherwise else -1,
            first_end * width,
            np.array(next_end, np.int32),
            _bounds([len(trie.texts[end]) for end in ends]),
            np.array([number for end in ends for number in trie.texts[end]], np.int32),
            np.frombuffer(b"".join(rests), np.uint8),
            _bounds([len(rest) for rest in rests]),
        )

    def holds(self, column: Column) -> Words:
        """For each leaf, the messages for which it is true: packed bits, shape (leaves, words)."""
        bits = np.zeros((len(self.rest_offsets) - 1, words(len(column))), np.uint64)
        automaton = (self.is_backwards, self.classes, self.steps, self.width, self.root, self.dead, self.first_end)
        ends = (self.next_end, self.bounds, self.found, self.rests, self.rest_offsets)
        search_loops.search(kernels.texts_of(column), len(column), *automaton, *ends, bits)
        return bits


@dataclass(frozen=True, eq=False)
class _Trie:
    """A state for each beginning of the searched octets of the texts; state 0 is the empty one.

    ``children[state]``: the states that are one octet longer, by this octet. ``texts[state]``: the numbers of the texts
    whose searched octets end there.
    """

    children: list[dict[int, int]]
    texts: list[list[int]]

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> _Trie:
        trie = cls([{}], [[]])
        for number, text in enumerate(texts):
            state = 0
            for octet in text[:SEARCHED]:
                if octet not in trie.children[state]:
                    trie.children[state][octet] = trie.add_state()
                state = trie.children[state][octet]
            trie.texts[state].append(number)
        return trie

    def add_state(self) -> int:
        """A new state, without children and texts."""
        self.children.append({})
        self.texts.append([])
        return len(self.children) - 1


def _classes(texts: Sequence[bytes]) -> Numbers:
    """The class of each octet: 0 for those that no text has among its searched octets. Shape (256,)."""
    octets = sorted({octet for text in texts for octet in text[:SEARCHED]})
    classes = np.zeros(256, np.int32)
    classes[octets] = np.arange(1, len(octets) + 1)
    return classes


def _transitions(trie: _Trie, classes: Numbers, otherwise: int) -> tuple[Numbers, Sequence[int], npt.NDArray[np.bool_]]:
    """The next states, shape (states, classes); and for each state, the next shorter one, and whether it is an end.

    The next shorter state (the "failure" of Aho and Corasick) is that of the longest end of what a state stands for, or
    ``otherwise`` if no search text begins so. A state is an end if a text ends there, or at a shorter state.
    """
    states = len(trie.children)
    steps = np.full((states, 1 << int(classes.max()).bit_length()), otherwise, np.int32)
    shorter = [otherwise] * states
    is_end = np.array([bool(numbers) for numbers in trie.texts])
    in_breadth = [0]
    for state in in_breadth:
        if state:
            steps[state] = steps[shorter[state]]
            is_end[state] |= is_end[shorter[state]]
        for octet, child in trie.children[state].items():
            shorter[child] = int(steps[state, classes[octet]])
            steps[state, classes[octet]] = child
            in_breadth.append(child)
    return steps, shorter, is_end


def _bounds(lengths: Sequence[int]) -> Numbers:
    return np.cumsum([0, *lengths]).astype(np.int32)
