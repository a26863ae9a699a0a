"""Finds many search texts in the texts of a column at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels, search_loops
from filtering.matcher.packed_bits import Words, words

SEARCHED = 16
"""Octets of a search text that have states: few, so that long texts need little memory."""
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TextSearch:
    """An automaton that reads a text once, octet by octet (Aho and Corasick, "Efficient string matching", 1975).

    A state stands for the longest end of what was read with which a search text begins. It is the position of a row of
    ``width`` elements in ``steps``: ``steps[state + classes[octet]]`` is the next state. At the states from
    ``first_end`` on, the first octets of some search texts end. End e has the texts ``found[bounds[e]:bounds[e + 1]]``,
    and those of the end ``next_end[e]`` if that is not -1. What must follow for text s is
    ``rests[rest_offsets[s]:rest_offsets[s + 1]]``.
    """

    classes: Numbers
    steps: Numbers
    width: int
    root: int
    first_end: int
    next_end: Numbers
    bounds: Numbers
    found: Numbers
    rests: npt.NDArray[np.uint8]
    rest_offsets: Numbers

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextSearch:
        """The automaton of some search texts."""
        encoded = [text.encode() for text in texts]
        octets = sorted({octet for text in encoded for octet in text[:SEARCHED]})
        classes = np.zeros(256, np.int32)
        classes[octets] = np.arange(1, len(octets) + 1)
        children: list[dict[int, int]] = [{}]
        texts_at: list[list[int]] = [[]]
        for number, text in enumerate(encoded):
            state = 0
            for octet in text[:SEARCHED]:
                if octet not in children[state]:
                    children[state][octet] = len(children)
                    children.append({})
                    texts_at.append([])
                state = children[state][octet]
            texts_at[state].append(number)
        steps = np.zeros((len(children), 1 << len(octets).bit_length()), np.int32)
        shorter = [0] * len(children)
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
        rests = [text[SEARCHED:] for text in encoded]
        return cls(
            classes,
            (place * steps.shape[1])[steps[order]].ravel(),
            steps.shape[1],
            int(place[0]) * steps.shape[1],
            first_end * steps.shape[1],
            np.array(
                [place[shorter[end]] - first_end if end and is_end[shorter[end]] else -1 for end in ends], np.int32
            ),
            _bounds([len(texts_at[end]) for end in ends]),
            np.array([number for end in ends for number in texts_at[end]], np.int32),
            np.frombuffer(b"".join(rests), np.uint8),
            _bounds([len(rest) for rest in rests]),
        )

    def contained(self, column: Column) -> Words:
        """For each search text and message, whether the message's text contains it: shape (search texts, words)."""
        bits = np.zeros((len(self.rest_offsets) - 1, words(len(column))), np.uint64)
        automaton = (self.classes, self.steps, self.width, self.root, self.first_end)
        ends = (self.next_end, self.bounds, self.found, self.rests, self.rest_offsets)
        search_loops.search(kernels.texts_of(column), *automaton, *ends, bits)
        return bits


def _bounds(lengths: Sequence[int]) -> Numbers:
    return np.cumsum([0, *lengths]).astype(np.int32)
