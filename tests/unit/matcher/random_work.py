"""Random predicates and messages, with the odd texts and numbers that Java reads in its own way."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from filtering.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    DoublesCompare,
    IsNumber,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    TagsCodeIn,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
)

NAMES = ["a", "b", "c", "Größe", "never"]
TEXTS = [
    *("", " ", "a", "ab", "abc", "abcdefgh", "abcdefghi", "abcdefg\0", "abcdefg", "abcdefghabcdefghX", "true", "TRUE"),
    *("tRuE", "abcdefghabcdefghY", "x" * 16, "x" * 17, "é", "😀", "Größe", "0", "-0", "+5", "5", "05", "5.0"),
    *("5.", ".5", "."),
    *("-", " 5", "5\t", "5d", "5f", "5L", "1e3", "0x1.4p2", "NaN", "-NaN", "Infinity", "-Infinity", "1e400"),
    *("-1e-400", "٥", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "0.1", "0.30000000000000004"),
    *("123456789012345678", "-0.0", "0.0"),
    *("9007199254740993", "9007199254740992", "1.00000000000000000000001", "100000000000000000000000",),
    *("0000000000000000000005",),
    *("4.9E-324", "1.7976931348623157E308", "12.34", "12.340", "-12.34", "+12.34", "1234567890.12345"),
    *("4.35", "0.000001"),
]  # fmt: skip
INTS = [0, 5, -5, 2147483647, -2147483648, 12, 100]
LONGS = [*INTS, 2**63 - 1, -(2**63), 2**31, 123456789012345678]
DOUBLES = [0.0, -0.0, 5.0, 0.1, 12.34, math.nan, math.inf, -math.inf, 9007199254740992.0, 4.9e-324, 1e308, -12.34]
VALUES: dict[NumberType, Sequence[float]] = {NumberType.INT: INTS, NumberType.LONG: LONGS, NumberType.DOUBLE: DOUBLES}
CODES = [0, 1, -1, 2**31 - 1, -(2**31), 2112, 77]


def predicate(random: random.Random, depth: int = 2) -> Predicate:
    kind = random.randrange(10) if depth else 9
    if kind < 3:
        return And(tuple(predicate(random, depth - 1) for _ in range(random.randint(1, 4))))
    if kind < 6:
        return Or(tuple(predicate(random, depth - 1) for _ in range(random.randint(1, 4))))
    if kind < 8:
        return Not(predicate(random, depth - 1))
    return leaf(random)


def leaf(random: random.Random) -> Predicate:
    name, other = random.choice(NAMES), random.choice(NAMES)
    text = random.choice(TEXTS)
    type = random.choice(list(NumberType))
    comparison = random.choice(list(Comparison))
    make: Callable[[], Predicate] = random.choice(
        [
            lambda: random.choice([TRUE, FALSE]),
            lambda: IsPresent(name),
            lambda: TextIn(name, frozenset(random.sample(TEXTS, random.randint(0, 30)))),
            lambda: TextIn(name, frozenset([text])),
            lambda: TextContains(name, text),
            lambda: TextStartsWith(name, text),
            lambda: TextEndsWith(name, text),
            lambda: IsTrueText(name),
            lambda: IsNumber(name, type),
            lambda: NumberIs(name, type, comparison, random.choice(VALUES[type])),
            lambda: NumberIs(name, type, comparison, random.choice(VALUES[type])),
            lambda: NumberIs(name, type, comparison, random.choice(VALUES[type])),
            lambda: TextsEqual(name, other),
            lambda: DoublesCompare(name, other, comparison),
            lambda: TagsCodeIn(frozenset(random.sample(CODES, random.randint(0, 5)))),
        ]
    )
    return make()


def messages(random: random.Random, rows: int) -> list[dict[str, str]]:
    return [{name: random.choice(TEXTS) for name in NAMES[:4] if random.random() < 0.8} for _ in range(rows)]


def tags_codes(random: random.Random, rows: int) -> list[int | None]:
    return [random.choice([None, *CODES, random.choice(CODES) + 2**32, 2**63 - 1]) for _ in range(rows)]
