"""The matcher against a scalar interpreter of predicates."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from copy import deepcopy
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from filtering.matcher import Matcher, Matches, match
from filtering.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    IsPresent,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    TextContains,
    TextIn,
    TextsEqual,
    holds,
)
from tests.depth import examples
from tests.unit.matcher.random_work import NAMES, messages, predicate, tags_codes

Row = dict[str, str]
Bools = npt.NDArray[np.bool_]
MAP = pa.map_(pa.string(), pa.string())
SIZES = [0, 1, 63, 64, 65, 150]


def columns(rows: Sequence[Row]) -> list[pa.StringArray]:
    return [pa.array([row.get(name) for row in rows], pa.string()) for name in NAMES]


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns(rows), NAMES)


def as_map(rows: Sequence[Row | None]) -> pa.MapArray:
    return pa.array([None if row is None else list(row.items()) for row in rows], MAP)


def check(matches: Matches, expected: Bools) -> None:
    """``expected``: bool, shape (predicates, rows)."""
    predicates, rows = expected.shape
    assert (matches.predicates, matches.rows) == expected.shape
    assert matches.bits.dtype == np.uint64
    assert matches.bits.shape == (predicates, (rows + 63) // 64)
    octets = np.packbits(expected, axis=1, bitorder="little")
    octets = np.pad(octets, ((0, 0), (0, matches.bits.shape[1] * 8 - octets.shape[1])))
    assert (np.ascontiguousarray(matches.bits).view(np.uint8).reshape(octets.shape) == octets).all()
    assert matches.counts().tolist() == expected.sum(axis=1).tolist()
    indptr, positions = matches.pairs()
    assert (indptr.dtype, positions.dtype) == (np.dtype(np.int64), np.dtype(np.int32))
    assert indptr.tolist() == [0, *expected.sum(axis=1).cumsum().tolist()]
    assert (positions == np.nonzero(expected)[1]).all()


def expected_of(predicates: Sequence[Predicate], rows: Sequence[Row], codes: Sequence[int | None]) -> Bools:
    return np.array(
        [[holds(p, row, code) for row, code in zip(rows, codes, strict=True)] for p in predicates], bool
    ).reshape(len(predicates), len(rows))


@cache
def random_work(seed: int) -> tuple[list[Predicate], list[tuple[list[Row], list[int | None], Bools]]]:
    rng = random.Random(seed)
    predicates = [predicate(rng) for _ in range(40)]
    batches = [(messages(rng, size), tags_codes(rng, size)) for size in SIZES]
    return predicates, [(rows, codes, expected_of(predicates, rows, codes)) for rows, codes in batches]


@pytest.mark.parametrize("seed", range(examples(1, deep=6)))
def test_random_predicates_in_every_layout(seed: int) -> None:
    rng = random.Random(seed)
    predicates, batches = random_work(seed)
    matcher = pickle.loads(pickle.dumps(Matcher(predicates)))
    for rows, codes, expected in batches:
        size = len(rows)
        tags_code = pa.array(codes, pa.int64())
        plain = batch(rows)
        struct = pa.StructArray.from_arrays(columns(rows), NAMES)
        dictionary = pa.RecordBatch.from_arrays([column.dictionary_encode() for column in columns(rows)], NAMES)
        large = pa.RecordBatch.from_arrays([column.cast(pa.large_string()) for column in columns(rows)], NAMES)
        for layout in (plain, struct, dictionary, large, as_map(rows)):
            check(matcher.match(layout, tags_code), expected)
            first, count = rng.randint(0, size), rng.randint(0, size)
            part = slice(first, first + count)
            check(matcher.match(layout[part], tags_code[part]), expected[:, part])


def test_a_block_of_many_registers_and_rows() -> None:
    """More classes than rows, more rows than a block of any kernel has."""
    rng = random.Random(7)
    numbers = [str(rng.randrange(10_000)) for _ in range(9_000)]
    words = [f"word {rng.randrange(3_000)}" for _ in range(9_000)]
    least = [rng.randrange(10_000) for _ in range(700)]
    searched_words = [f"word {rng.randrange(3_000)}" for _ in range(700)]
    matcher = Matcher(
        [NumberIs("n", NumberType.INT, Comparison.GREATER_OR_EQUAL, value) for value in least]
        + [TextIn("w", frozenset([text])) for text in searched_words]
    )
    values, texts = np.array(numbers, int), np.array(words)
    expected = np.concatenate([values >= np.array(least)[:, None], texts == np.array(searched_words)[:, None]])
    check(matcher.match(pa.record_batch({"n": numbers, "w": words})), expected)


def test_random_predicates_over_several_blocks_of_rows() -> None:
    """Few classes, and predicates without classes: a register has 4,096 rows."""
    predicates, batches = random_work(0)
    rows, codes, expected = batches[-1]
    numbers = np.random.default_rng(1).integers(0, len(rows), 2 * 4_096 + 100)
    matcher = Matcher(predicates)
    for count in (4_095, 4_096, 4_097, len(numbers)):
        part = numbers[:count]
        tags_code = pa.array([codes[row] for row in part], pa.int64())
        check(matcher.match(batch([rows[row] for row in part]), tags_code), expected[:, part])
        check(matcher.match(as_map([rows[row] for row in part]), tags_code), expected[:, part])


def test_messages_without_properties() -> None:
    predicates = [IsPresent("a"), Not(IsPresent("a")), TextIn("a", frozenset([""])), TRUE, FALSE]
    matcher = Matcher(predicates)
    rows: list[Row] = [{}, {"a": ""}, {"b": ""}, {}]
    expected = expected_of(predicates, rows, [None] * 4)
    check(matcher.match(as_map([None, {"a": ""}, {"b": ""}, {}])), expected)
    check(matcher.match(as_map([{"a": "x"}, None, {"a": ""}, {"b": ""}, {}])[1:]), expected)
    check(matcher.match(pa.nulls(3, MAP)), expected[:, [0, 0, 0]])
    numbered = pa.MapArray.from_arrays([0, 0, 1, 2], pa.array(["a", "b"]), pa.array(["", ""]).dictionary_encode())
    check(matcher.match(numbered), expected[:, :3])
    check(matcher.match(pa.array([None, {"a": ""}, {"a": None}], pa.struct({"a": pa.string()}))), expected[:, :3])
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    check(matcher.match(empty), expected[:, [0, 0]])


@pytest.mark.parametrize("name", ["a", "b"])
def test_two_properties_of_which_a_batch_has_one(name: str) -> None:
    matches = Matcher([TextsEqual("a", "b")]).match(pa.RecordBatch.from_pydict({name: ["1", None]}))
    check(matches, np.zeros((1, 2), bool))


def test_a_null_map_may_hide_entries() -> None:
    whole = as_map([{"a": "x"}, {"a": "y"}])
    hidden = pa.MapArray.from_buffers(MAP, 2, [pa.py_buffer(b"\2"), whole.buffers()[1]], children=[whole.values])
    check(Matcher([IsPresent("a")]).match(hidden), np.array([[False, True]]))


def test_nothing_to_match() -> None:
    check(Matcher([]).match(batch(messages(random.Random(1), 65))), np.zeros((0, 65), bool))
    check(Matcher([TRUE, IsPresent("a")]).match(batch([])), np.zeros((2, 0), bool))


def test_equal_predicates_keep_their_places() -> None:
    predicates = [IsPresent("a"), TRUE, IsPresent("a"), Not(IsPresent("a")), TRUE]
    rows: list[Row] = [{"a": "1"}, {}, {"a": "2"}]
    check(Matcher(predicates).match(batch(rows)), expected_of(predicates, rows, [None] * 3))


def test_every_value_distinct_and_long() -> None:
    rows = [{"a": f"{i}" + "x" * 65_536, "b": f"{i}.{i}"} for i in range(130)]
    predicates = [
        TextIn("a", frozenset([rows[7]["a"]])),
        TextIn("a", frozenset([rows[7]["a"][:-1] + "y"])),
        TextContains("a", "77x"),
        NumberIs("a", NumberType.LONG, Comparison.GREATER, 5),
        NumberIs("b", NumberType.DOUBLE, Comparison.GREATER, 64.64),
    ]
    check(Matcher(predicates).match(batch(rows)), expected_of(predicates, rows, [None] * 130))


def test_a_deep_predicate() -> None:
    deep: Predicate = IsPresent("a")
    for i in range(20_000):
        deep = Not(deep) if i % 2 else And((Not(deep), Not(TextIn("b", frozenset([str(i % 9)])))))
    check(Matcher([deep]).match(batch([{"a": "1"}, {}])), np.array([[True, False]]))


def test_the_properties_a_matcher_reads() -> None:
    predicates = [TextIn("b", frozenset(["x"])), TextContains("c", "x"), IsPresent("b"), TRUE]
    assert set(Matcher(predicates).properties) == {"b", "c"}


def test_another_type_of_batch_is_refused() -> None:
    with pytest.raises(TypeError, match="RecordBatch"):
        Matcher([TRUE]).match(pa.array(["x"]))


def test_deep_predicates_are_pickled_and_copied() -> None:
    deep: Predicate = IsPresent("first")
    for number in range(10_000):
        deep = Not(Or((deep, IsPresent(str(number)))))
    assert pickle.loads(pickle.dumps(deep)) is deep
    assert deepcopy(deep) is deep


def test_match_takes_expressions() -> None:
    properties = pa.record_batch({"price": ["5", "12", None, "x"]})
    indptr, rows = match(properties, ["price > 10", "price IS NULL OR price = '5'"]).pairs()
    assert (indptr.tolist(), rows.tolist()) == ([0, 1, 3], [1, 0, 2])
