"""Known texts are found in a column, whatever their number, their length and their place."""

import random

import numpy as np
import pyarrow as pa
import pytest

from filtering.matcher import Matcher
from filtering.matcher.column import Column, known_texts
from filtering.matcher.packed_bits import unpack
from filtering.matcher.program import compile_program
from filtering.sql92 import compile

ALIKE = ["", "a", "a\0", "\0", "\0a", "ab", "abcdefgh", "abcdefg", "abcdefg\0", "bbcdefgh", "ä", "äöüß", "日本", "b"]
LONGER = ["abcdefghi", "abcdefgh\0", "abcdefghijklmnop", "abcdefgh-jklmnop", "x" * 17, "x" * 8 + "y" + "x" * 8]
MANY = [f"ch{number}" for number in range(40)]


@pytest.mark.parametrize(
    "known",
    [[], [""], ["a"], LONGER[:1], ALIKE, ALIKE[::2], [*ALIKE, *LONGER], MANY[:16], MANY[:17], [*MANY, *ALIKE[1::2]]],
)
def test_known_texts_are_found(known: list[str]) -> None:
    every: list[str | None] = [*ALIKE, *LONGER, *MANY, None] * 9
    random.Random(len(known)).shuffle(every)
    answers = np.arange(10, 12 + len(known), dtype=np.int32)
    index = known_texts(tuple(known), answers)
    of = dict(zip(known, answers.tolist(), strict=False))
    expected = [answers[-1] if text is None else of.get(text, answers[-2]) for text in every]
    positions = np.array([-1 if text is None else every.index(text) for text in every], np.int32)
    assert index.answers(Column(pa.array(every, pa.string()))).tolist() == expected
    assert index.answers(Column(pa.array(["a", *every], pa.string())[1:])).tolist() == expected
    assert index.answers(Column(pa.array(every, pa.string()), positions)).tolist() == expected


def one_octet_apart(length: int) -> list[str]:
    text = "a" * length
    return [text, *(f"{text[:at]}b{text[at + 1 :]}" for at in range(length))]


@pytest.mark.parametrize(
    "every",
    [
        [text for length in range(7, 42) for text in one_octet_apart(length)],
        [f"order {number}" for number in range(6_000)],
    ],
    ids=["one octet apart", "very many"],
)
def test_each_of_many_texts_is_told_from_the_others(every: list[str]) -> None:
    rng = random.Random(1)
    known = rng.sample(every, len(every) // 2)
    answers = np.arange(len(known) + 2, dtype=np.int32)
    of = dict(zip(known, answers.tolist(), strict=False))
    numbers = known_texts(tuple(known), answers).answers(Column(pa.array(every)))
    assert numbers.tolist() == [of.get(text, len(known)) for text in every]


def test_texts_that_go_on_from_the_end_of_their_table_are_found() -> None:
    """In some of these tables, a text whose place is the last slot is in the first one."""
    for table in range(150):
        known = [f"{table} {number}" for number in range(1_000)]
        answers = np.arange(len(known) + 2, dtype=np.int32)
        index = known_texts(tuple(known), answers)
        assert index.answers(Column(pa.array(known))).tolist() == [*range(1_000)]


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_long_lists_that_overlap(is_dictionary: bool) -> None:
    """70 lists of 100 to 300 of 400 texts, more than bits in a word, take a register each and not one for each text."""
    rng = random.Random(3)
    every = [f"shop {number}" for number in range(400)]
    lists = [rng.sample(every, rng.choice([100, 200, 300])) for _ in range(70)]
    texts = [rng.choice([None, "", "shop", *every]) for _ in range(1_000)]
    column = pa.array(texts, pa.string())
    batch = pa.record_batch({"a": column.dictionary_encode() if is_dictionary else column})
    quoted = [", ".join(f"'{text}'" for text in listed) for listed in lists]
    asked = [f"a IN ({listed})" for listed in quoted] + [f"a NOT IN ({listed})" for listed in quoted]
    matcher = Matcher([compile(text).predicate for text in [*asked, "a = 'shop 7'", "b IN ('x')"]])
    expected = [[text in listed for text in texts] for listed in lists]
    expected += [[text is not None and text not in listed for text in texts] for listed in lists]
    expected += [[text == "shop 7" for text in texts], [False] * len(texts)]
    assert unpack(matcher.match(batch).bits, len(texts)).tolist() == expected
    assert matcher.match(batch.select([])).counts().tolist() == [0] * len(expected)
    assert sum(axis.registers for axis in compile_program([compile(text).predicate for text in asked]).axes) < 10
