"""Numbers of a column are those that Java parses, whatever their length and their place in the column."""

import math
import random
import struct
import unicodedata
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest

from filtering.java import double_order, parse_double, parse_int, parse_long
from filtering.kernels.number_loops import ZEROS
from filtering.matcher.column import Column
from filtering.matcher.matcher import Cuts, numbers
from filtering.predicate import NumberType

TEXTS = [
    "", "-", "+", ".", "-.", "5.", ".5", "-0", "-0.0", "00", "1.2.3", "12345678", "-12345678", "+1234567", "123456789",
    "1234567.", ".1234567", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "9223372036854775808",
    "9007199254740993", "0.1", "1e5", "0x10", "NaN", " 5", "5 ", "٥", "5d", "--5", "-+5", "12-45", "5\0",
    "-9223372036854775808", "-9223372036854775809", "+9223372036854775807", "18446744073709551616", "1" * 30, "1" * 400,
    "0" * 40 + "7", "-" + "0" * 40, "00000000000000000000.5", "123456789.5e-22", "9007199254740992e22", "1e22", "1e23",
    "1e-22", "-1e-23", "123456789e+5", "123456789E-5f", "123456789e", "123456789e+", "123456789e5x", "1e400", "1e-400",
    "1e999999999999999999999", "-1e-999999999999999999999", "123456789d ", "\t123456789.25\n", "123456789 5",
    "123456789dd", "0x1.8p4", "0X1P-3", "0xg", "00x1p1", "0.x1", "-0x1p3", "Infinity", "-Infinity", "+NaN", "NaNd",
    "Nan", "inf", "Infinityy", "123456789N", ".", "..", "........e", "123456789.", ".123456789", "1.2.3456789", "e5",
    ".e5", "ORD-123456", "1234567890-ABC", "区域123456789", "12345678９", "123456789٥", "١٢٣٤٥٦٧٨٩٠", "-１２３", "𝟙𝟚𝟛",
    f"0.{'0' * 9_999}1e10000", f"0.{'0' * 9_999}1e10308", f"0.{'0' * 9_999}1e20000", f"1{'0' * 20_000}e-20000",
    "123456789\u00a0", "\u2003123456789", "1234567_89", "123456789L", "+ 123456789",
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
    rng = random.Random(seed)
    made = [
        "".join(rng.choice("0123456789.-+"[: rng.choice((10, 11, 13))]) for _ in range(size % 21))
        for size in range(600)
    ]
    every: list[str | None] = [*TEXTS, *made, *(None,) * 20]
    rng.shuffle(every)
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


def decimal_like(rng: random.Random) -> str:
    """A text of the parts of which Java's doubles consist, mostly in their order."""
    digits = "".join(rng.choices("0123456789", k=rng.choice((0, 1, 3, 9, 16, 17, 19, 25))))
    fraction = "." + "".join(rng.choices("0123456789", k=rng.choice((0, 1, 5, 12))))
    exponent = rng.choice("eE") + rng.choice(("", "+", "-")) + str(rng.randrange(40))
    parts = [
        rng.choice(("", "", " ", "\t\0")), rng.choice(("", "", "-", "+")), digits, rng.choice(("", fraction)),
        rng.choice(("", exponent)), rng.choice(("", "", "f", "D", "x")), rng.choice(("", "", " \n")),
    ]  # fmt: skip
    if rng.random() < 0.1:
        rng.shuffle(parts)
    return "".join(parts)


@pytest.mark.parametrize("type", NumberType)
def test_numbers_of_texts_that_look_like_numbers(type: NumberType) -> None:
    rng = random.Random(7)
    texts = [decimal_like(rng) for _ in range(20_000)]
    values, is_number = numbers(Column(pa.array(texts)), type)
    parsed_values = [value if known else None for value, known in zip(values.tolist(), is_number.tolist(), strict=True)]
    assert [
        (text, value)
        for text, value, expected in zip(texts, parsed_values, (parsed(text, type) for text in texts), strict=True)
        if value != expected
    ] == []


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (type, text)
        for type in NumberType
        for text in (
            "1234567890123456789",
            "ORD-2026-000001",
            "us-east-1",
            "区域-000012",
            "1790000000000",
            "-123456789",
            "١٢٣٤٥٦٧٨٩",
            "नई दिल्ली",
            "Ningbo",
            "0x5f3759df",
        )
    ]
    + [
        (NumberType.DOUBLE, text)
        for text in (
            "12.50 ",
            "123456.789e-3",
            "6fa459ea-ee8a-3ca4-894e-db77e160355e",
            "NaN",
            "-Infinity",
            "0.30000000000000004",
            "1.2345678901234567e-300",
            "123456789012345678901234567890.12345",
            "85e77612",
        )
    ],
)
def test_common_texts_are_parsed_by_compiled_loops(
    monkeypatch: pytest.MonkeyPatch, type: NumberType, text: str
) -> None:
    """A million texts that are left to Python take seconds."""
    monkeypatch.delattr("filtering.matcher.matcher.parse")
    values, is_number = numbers(Column(pa.array([text])), type)
    value = parsed(text, type)
    assert values[is_number].tolist() == ([] if value is None else [value])


def test_every_digit_beyond_ascii_is_known() -> None:
    digits = {code: unicodedata.decimal(chr(code), None) for code in range(128, 0x10000)}
    known = {code: value for code, value in digits.items() if value is not None}
    assert known == {zero + value: value for zero in ZEROS for value in range(10)}


def test_every_character_as_an_integer() -> None:
    texts = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    values, is_number = numbers(Column(pa.array(texts)), NumberType.INT)
    parsed_values = [value if known else None for value, known in zip(values.tolist(), is_number.tolist(), strict=True)]
    assert parsed_values == [parse_int(text) for text in texts]


def between_doubles(rng: random.Random) -> str:
    """A decimal at or near the middle between two doubles, sometimes cut to the digits of a word."""
    number = abs(struct.unpack(">d", rng.randbytes(8))[0])
    if rng.random() < 0.3:
        number = rng.choice([rng.randrange(2**53), 2.0 ** rng.randrange(-1074, 1024)])
    if not math.isfinite(number):
        number = rng.random()
    with localcontext(prec=1_100):
        middle = (Decimal(number) + Decimal(math.nextafter(number, 0.0))) / 2
        nudged = middle + middle * rng.choice([-1, 0, 0, 1]) / 10 ** rng.choice([18, 19, 20, 30])
        return f"{nudged:.{rng.choice([17, 18, 19, 25, 800])}e}"


def test_decimals_near_the_middle_of_two_doubles() -> None:
    rng = random.Random(20)
    texts = [between_doubles(rng) for _ in range(20_000)]
    texts += [f"{rng.getrandbits(rng.randint(1, 64))}e{rng.randrange(-345, 312)}" for _ in range(20_000)]
    values, is_number = numbers(Column(pa.array(texts)), NumberType.DOUBLE)
    assert is_number.all()
    wrong = [
        (text, value)
        for text, value in zip(texts, values.tolist(), strict=True)
        if value != parsed(text, NumberType.DOUBLE)
    ]
    assert not wrong


@pytest.mark.parametrize("type", [NumberType.INT, NumberType.LONG, NumberType.DOUBLE])
@pytest.mark.parametrize("count", [1, 3, 32, 33, 120])
@pytest.mark.parametrize("clustered", [False, True])
def test_classes_of_numbers(type: NumberType, count: int, clustered: bool) -> None:
    texts = texts_of(count)
    values = [parsed(text, type) for text in texts]
    known = sorted({value for value in values if value is not None})
    cut_values = random.Random(count).sample(known, count)
    if clustered:
        cut_values = [known[0], *range(cut_values[0], cut_values[0] + count - 1)]
    cuts = np.unique(np.array(cut_values, np.int64))
    classes = Cuts.of(type, cuts).answers(Column(pa.array(texts)))
    expected = [len(cuts) + 1 if value is None else int((cuts <= value).sum()) for value in values]
    assert classes.tolist() == expected
