"""Known texts are found in a column, whatever their number, their length and their place."""

import random

import numpy as np
import pyarrow as pa
import pytest

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels

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
    index = kernels.index_texts(tuple(known), answers)
    of = dict(zip(known, answers.tolist(), strict=False))
    expected = [answers[-1] if text is None else of.get(text, answers[-2]) for text in every]
    positions = np.array([-1 if text is None else every.index(text) for text in every], np.int32)
    assert kernels.find_texts(Column(pa.array(every, pa.string())), index).tolist() == expected
    assert kernels.find_texts(Column(pa.array(["a", *every], pa.string())[1:]), index).tolist() == expected
    assert kernels.find_texts(Column(pa.array(every, pa.string()), positions), index).tolist() == expected


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
    chosen = random.Random(1)
    known = chosen.sample(every, len(every) // 2)
    answers = np.arange(len(known) + 2, dtype=np.int32)
    of = dict(zip(known, answers.tolist(), strict=False))
    found = kernels.find_texts(Column(pa.array(every)), kernels.index_texts(tuple(known), answers))
    assert found.tolist() == [of.get(text, len(known)) for text in every]


def test_texts_that_go_on_from_the_end_of_their_table_are_found() -> None:
    """In some of these tables, a text whose place is the last slot is in the first one."""
    for table in range(150):
        known = [f"{table} {number}" for number in range(1_000)]
        answers = np.arange(len(known) + 2, dtype=np.int32)
        index = kernels.index_texts(tuple(known), answers)
        assert kernels.find_texts(Column(pa.array(known)), index).tolist() == [*range(1_000)]
