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
        octets = sorted({octet for text in encoded for octet in text[:SEARCHED]})
        classes = np.zeros(256, np.int32)
        classes[octets] = np.arange(1, len(octets) + 1)
        children, texts_at = _trie(encoded)
        otherwise = 0
        if leaf is not TextContains:
            otherwise = len(children)
            children.append({})
            texts_at.append([])
        steps = np.full((len(children), 1 << len(octets).bit_length()), otherwise, np.int32)
        shorter = [otherwise] * len(children)
        is_end = np.array([bool(numbers) for numbers in texts_at])
        in_breadth = [0]
        for state in in_breadth:
            if state:
                steps[state] = steps[shorter[state]]
                is_end[state] |= is_end[shorter[state]]
            for octet, child in children[state].items():
                shorter[child] = int(steps[state, classes[octet]])
                steps[state, classes[octet]] = child
                in_breadth.append(child)
        order = np.argsort(is_end, kind="stable")
        place = np.argsort(order).astype(np.int32)
        first_end = int(np.count_nonzero(~is_end))
        ends = order[first_end:].tolist()
        width = steps.shape[1]
        rests = [text[SEARCHED:] for text in encoded]
        return cls(
            is_backwards,
            classes,
            (place * width)[steps[order]].ravel(),
            width,
            int(place[0]) * width,
            int(place[otherwise]) * width if otherwise else -1,
            first_end * width,
            np.array(
                [place[shorter[end]] - first_end if end and is_end[shorter[end]] else -1 for end in ends], np.int32
            ),
            _bounds([len(texts_at[end]) for end in ends]),
            np.array([number for end in ends for number in texts_at[end]], np.int32),
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


def _trie(texts: Sequence[bytes]) -> tuple[list[dict[int, int]], list[list[int]]]:
    """For each state: the states after it, by octet, and the texts whose searched octets end there. State 0 begins."""
    children: list[dict[int, int]] = [{}]
    texts_at: list[list[int]] = [[]]
    for number, text in enumerate(texts):
        state = 0
        for octet in text[:SEARCHED]:
            if octet not in children[state]:
                children[state][octet] = len(children)
                children.append({})
                texts_at.append([])
            state = children[state][octet]
        texts_at[state].append(number)
    return children, texts_at


def _bounds(lengths: Sequence[int]) -> Numbers:
    return np.cumsum([0, *lengths]).astype(np.int32)
