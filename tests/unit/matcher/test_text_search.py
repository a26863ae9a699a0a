"""Search texts are found wherever they are in the texts of a column."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from filtering.matcher import match
from filtering.matcher.column import Column
from filtering.matcher.matcher import SEARCHED, SearchAutomaton, SearchLeaf
from filtering.matcher.packed_bits import unpack
from filtering.predicate import TextContains, TextEndsWith, TextStartsWith, text_holds


def made(rng: random.Random, letters: str, longest: int) -> str:
    return "".join(rng.choices(letters, k=rng.randrange(longest)))


@pytest.mark.parametrize("letters", ["ab", "abcé日😀"])
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("leaf", [TextContains, TextStartsWith, TextEndsWith])
def test_search_texts_are_found(letters: str, seed: int, leaf: type[SearchLeaf]) -> None:
    """Few letters: search texts overlap, begin with each other, and are ends of each other."""
    rng = random.Random(seed)
    longest = rng.choice([3, 6, 2 * SEARCHED])
    searched = list({made(rng, letters, longest) for _ in range(rng.choice([1, 3, 40]))})
    texts = [None if rng.random() < 0.1 else made(rng, letters, 60) for _ in range(150)]
    positions = np.array(rng.choices(range(-1, len(texts)), k=100), np.int32)
    texts_at_positions = [None if at < 0 else texts[at] for at in positions.tolist()]
    search = SearchAutomaton.of(searched, leaf)
    for column, column_texts in (
        (Column(pa.array(texts, pa.string())), texts),
        (Column(pa.array(["ab", *texts], pa.string())[1:]), texts),
        (Column(pa.array(texts, pa.string()), positions), texts_at_positions),
    ):
        expected = [
            [text is not None and text_holds(leaf("a", part), text) for text in column_texts] for part in searched
        ]
        assert unpack(search.holds(column), len(column)).tolist() == expected


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (TextContains, [[0, 1, 1, 1, 1], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]]),
        (TextStartsWith, [[0, 1, 1, 0, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]]),
        (TextEndsWith, [[0, 1, 0, 1, 1], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]),
    ],
)
def test_the_rest_of_a_long_search_text_must_follow(leaf: type[SearchLeaf], expected: list[list[int]]) -> None:
    start = "x" * SEARCHED
    texts = [start, f"{start}1", f"{start}12", f"x{start}1", f"{start}2{start}1"]
    search = SearchAutomaton.of([f"{start}1", f"{start}12", start], leaf)
    assert unpack(search.holds(Column(pa.array(texts))), len(texts)).astype(int).tolist() == expected


@pytest.mark.parametrize("rows", [1, 64, 65, 1_000])
def test_more_search_texts_than_bits_in_a_word_in_a_dictionary(rows: int) -> None:
    rng = random.Random(rows)
    searched = [f"{number:x}" for number in range(150)]
    texts = [rng.choice([None, "", *(f"{number:04x}" for number in range(0, 70_000, 999))]) for _ in range(rows)]
    batch = pa.record_batch({"a": pa.array([None, *texts], pa.string()).dictionary_encode()[1:]})
    holds = unpack(match(batch, [f"a CONTAINS '{part}'" for part in searched]).bits, rows)
    assert holds.tolist() == [[text is not None and part in text for text in texts] for part in searched]


@pytest.mark.parametrize("leaf", [TextContains, TextStartsWith, TextEndsWith])
def test_a_batch_without_messages_may_have_texts(leaf: type[SearchLeaf]) -> None:
    """A block of a night may have none of the messages whose dictionary it has. Bits beyond the result end Python."""
    column = Column(pa.repeat("a", 1 << 25), np.zeros(0, np.int32))
    assert SearchAutomaton.of(["a"], leaf).holds(column).shape == (1, 0)


@pytest.mark.parametrize("times", [1, 3])
def test_expressions_that_search_in_several_properties(times: int) -> None:
    """With ``times`` 3, there are fewer texts than messages."""
    color = pa.array(["dark red", "red", None, "blue"] * times).dictionary_encode()
    region = pa.array(["north-east", None, "north", "east"] * times)
    expressions = ["color CONTAINS 'red'", "region CONTAINS 'east' OR color CONTAINS 'blu'", "size CONTAINS 'x'"]
    expressions += ["color STARTSWITH 'red' OR region ENDSWITH 'th'"]
    matches = match(pa.record_batch({"color": color, "region": region}), [*expressions, "region NOT CONTAINS 'north'"])
    assert matches.counts().tolist() == [2 * times, 2 * times, 0, 2 * times, times]
