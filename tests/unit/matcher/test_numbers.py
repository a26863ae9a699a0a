"""Numbers of a column are those that Java parses, whatever their length and their place in the column."""

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from filtering.java.numbers import double_order, parse_double, parse_int, parse_long
from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels
from filtering.matcher.numbers import number_classes, numbers
from filtering.predicate import NumberType

TEXTS = [
    "", "-", "+", ".", "-.", "5.", ".5", "-0", "-0.0", "00", "1.2.3", "12345678", "-12345678", "+1234567", "123456789",
    "1234567.", ".1234567", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "9223372036854775808",
    "9007199254740993", "0.1", "1e5", "0x10", "NaN", " 5", "5 ", "٥", "5d", "--5", "-+5", "12-45", "5\0",
]  # fmt: skip


def parsed(text: str | None, type: NumberType) -> int | None:
    if text is None:
        return None
    if type is NumberType.DOUBLE:
        double = parse_double(text)
        return None if double is None else double_order(double)
    return parse_int(text) if type is NumberType.INT else parse_long(text)


def texts_of(seed: int) -> list[str | None]:
    """More than two blocks of texts: plain decimals, some odd texts, and missing ones."""
    chosen = random.Random(seed)
    made = [
        "".join(chosen.choice("0123456789.-+"[: chosen.choice((10, 11, 13))]) for _ in range(size % 21))
        for size in range(600)
    ]
    every: list[str | None] = [*TEXTS, *made, *(None,) * 20]
    chosen.shuffle(every)
    return every


@pytest.mark.parametrize(("text", "value"), [("0x1p99999", math.inf), ("-0x1p99999", -math.inf), ("-0x1p-99999", -0.0)])
def test_a_hexadecimal_number_keeps_its_sign(text: str, value: float) -> None:
    assert str(parse_double(text)) == str(value)


@pytest.mark.parametrize("type", NumberType)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_numbers_are_those_of_java(type: NumberType, seed: int) -> None:
    texts = texts_of(seed)
    expected = [parsed(text, type) for text in texts]
    for column in (Column(pa.array(texts)), Column(pa.array(["0", *texts])[1:])):
        values, is_number = numbers(column, type)
        assert [
            value if known else None for value, known in zip(values.tolist(), is_number.tolist(), strict=True)
        ] == expected


@pytest.mark.parametrize("type", [NumberType.INT, NumberType.LONG, NumberType.DOUBLE])
@pytest.mark.parametrize("count", [1, 3, 32, 33, 120])
@pytest.mark.parametrize("clustered", [False, True])
def test_classes_of_numbers(type: NumberType, count: int, clustered: bool) -> None:
    texts = texts_of(count)
    values = [parsed(text, type) for text in texts]
    known = sorted({value for value in values if value is not None})
    chosen = random.Random(count).sample(known, count)
    if clustered:
        chosen = [known[0], *range(chosen[0], chosen[0] + count - 1)]
    cuts = np.unique(np.array(chosen, np.int64))
    found = number_classes(Column(pa.array(texts)), type, kernels.index_cuts(cuts))
    expected = [len(cuts) + 1 if value is None else int((cuts <= value).sum()) for value in values]
    assert found.tolist() == expected
