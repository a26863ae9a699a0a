"""Equal predicates are one object, so that they are evaluated once."""

import pytest

from filtering.predicate import FALSE, TRUE
from filtering.sql92 import compile

EQUAL = [
    ("a = 'x' AND b = 'y'", "b = 'y' AND a = 'x'"),
    ("a = 'x' OR b = 'y'", "b = 'y' OR a = 'x' OR b = 'y'"),
    ("a = 'x' OR a = 'y'", "a IN ('y', 'x', 'x')"),
    ("a IN ('x', 'y') AND a IN ('y', 'z')", "a = 'y'"),
    ("a <> 'x' AND a <> 'y'", "a NOT IN ('x', 'y')"),
    ("NOT (a = 'x' OR b = 'y')", "a <> 'x' AND b <> 'y'"),
    ("a > 5 AND a > 7", "a >= 8"),
    ("a BETWEEN 5 AND 5", "a = 5"),
    ("a >= 5 AND a <= 9", "a BETWEEN 5 AND 9"),
    ("a > 1.5 OR a > 2.5", "a > 1.5"),
    ("a = 5 AND a IS NOT NULL", "a = 5"),
    ("a = 'x' AND a CONTAINS 'x'", "a = 'x'"),
    ("a = 'x' AND a = TRUE", "FALSE"),
    ("a = '5' AND a > 4", "a = '5'"),
    ("a > 9 AND a < 3", "FALSE"),
    ("a IS NULL AND a = 'x'", "FALSE"),
    ("a IS NULL OR a IS NOT NULL", "TRUE"),
    ("a = 'x' OR (a = 'x' AND b = 'y')", "a = 'x'"),
    ("a = 'x' AND (a = 'x' OR b = 'y')", "a = 'x'"),
    ("a = 'x' AND (a <> 'x' OR b = 'y')", "a = 'x' AND b = 'y'"),
    ("a = 5 AND TRUE", "a = 5"),
    ("a = b", "b = a"),
    ("a > b", "b < a"),
    ("5 < a", "a > 5"),
]


@pytest.mark.parametrize(("text", "equal"), EQUAL)
def test_equal_predicates_are_one_object(text: str, equal: str) -> None:
    assert compile(text).predicate is compile(equal).predicate


@pytest.mark.parametrize("text", ["NULL", "a", "NOT a = 5", "-a = 5", "a = 5 AND a = 6", "a CONTAINS ''"])
def test_what_is_never_true_is_false(text: str) -> None:
    assert compile(text).predicate is FALSE


@pytest.mark.parametrize("text", ["TRUE", "5 <> -a", "-a IS NULL", "a = a", "'5' = 5"])
def test_what_is_always_true_is_true(text: str) -> None:
    assert compile(text).predicate is TRUE


@pytest.mark.parametrize(
    ("text", "other"),
    [("a = 5", "a = 5.0"), ("a = 5", "a = '5'"), ("a = 5 OR b = 'x'", "b = 'x' OR a = 5"), ("a > 5.0", "a >= 5.0")],
)
def test_different_predicates_are_not(text: str, other: str) -> None:
    assert compile(text).predicate is not compile(other).predicate
