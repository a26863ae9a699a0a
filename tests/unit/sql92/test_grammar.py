"""How text is read: tables of what means the same, and of what is refused, where and why."""

import pickle

import pytest

from filtering.sql92 import InvalidExpression, compile
from filtering.sql92.parser import LONGEST

SAME = [
    ("a = 1 OR b = 2 AND c = 3", "a = 1 OR (b = 2 AND c = 3)"),
    ("NOT a = 5", "(NOT a) = 5"),
    ("NOT a IS NULL", "(NOT a) IS NULL"),
    ("a = b IS NULL", "(a = b) IS NULL"),
    ("a = 1 = TRUE", "(a = 1) = TRUE"),
    ("a = 5 BETWEEN 1 AND 9", "a = (5 BETWEEN 1 AND 9)"),
    ("a NOT BETWEEN 1 AND 5", "NOT (a BETWEEN 1 AND 5)"),
    ("a NOT IN ('x')", "NOT (a IN ('x'))"),
    ("a IS NOT NULL", "NOT (a IS NULL)"),
    ("a <> 'x'", "NOT (a = 'x')"),
    ("+a = +5", "a = 5"),
    ("a = --5", "a = 5"),
    ("a = --5\n6", "a = 6"),
    ("a = 5 -- c\rAND FALSE", "a = 5 AND FALSE"),
    ("a /* ** c */ = /***/ 5", "a = 5"),
    ("a\f=\t5\r\n", "a = 5"),
    ("aNd_x = 5AND b = 6", "aNd_x = 5 AND b = 6"),
    ("a = 007", "a = 0"),
    ("a = 0x10 OR TRUE", "a = 0"),
    ("a = 1.2.3", "a = 1.2"),
    ("a = 10L", "a = 10"),
    ("a = 5.E0", "a = 5.0"),
    ("a = 'it''s' 'x'", "a = 'it''s'"),
    ("a = 5 b = 6 OR TRUE", "a = 5"),
    ("a = 5) OR TRUE", "a = 5"),
    ("a = 5 b #", "a = 5"),
    ("a IS NULL > 5", "a IS NULL"),
    ("a LIKE 'x%' OR TRUE", "a"),
]

REFUSED = [
    ("", 0, "A property, a literal or a parenthesis is expected here, but the expression ends."),
    ("a = 5 AND", 9, "A property, a literal or a parenthesis is expected here, but the expression ends."),
    ("(a = 5", 0, "The parenthesis here is never closed."),
    ("a == 5", 3, "A property, a literal or a parenthesis is expected here: write = once."),
    ("a = = 5", 4, "A property, a literal or a parenthesis is expected here."),
    ("= 5", 0, "A property, a literal or a parenthesis is expected here."),
    ("a != 5", 2, "The character '!' is not part of the language: write <> for not equal."),
    ("a = 5 #", 6, "The character '#' is not part of the language."),
    ("a.b = 1", 1, "The character '.' is not part of the language: property names have no dots."),
    ("a = 'x", 4, 'The character "\'" is not part of the language: the string that starts here is never closed'),
    ("é = 5", 0, "The character '\\xe9' is not part of the language: names are ASCII"),
    ("a = 5 NOT b", 6, "NOT after an operand must be followed by BETWEEN, IN or a text search."),
    ("a IS 5", 5, "IS must be followed by NULL or NOT NULL."),
    ("a BETWEEN 1 OR 5", 12, "The lower bound of BETWEEN must be followed by AND."),
    ("a BETWEEN 5 AND 1", 2, "The lower bound of BETWEEN is above its upper bound."),
    ("a IN (5)", 6, "IN takes string literals only."),
    ("a IN ('x',)", 10, "A string literal is expected after the comma."),
    ("'x y' IN ('x')", 6, "IN tests a property, nothing else."),
    ("'x' IN ('x')", 4, "IN tests a property, nothing else. Write x without quotes."),
    ("'price' > 5", 8, "> compares properties and numbers, not strings, booleans or NULL. Write price without quotes."),
    ("region > 'x'", 7, "> compares properties and numbers, not strings, booleans or NULL."),
    ("a CONTAINS b", 11, "CONTAINS takes one string literal."),
    ("a > 'x'", 2, "> compares properties and numbers, not strings, booleans or NULL."),
    ("a = NULL", 2, "Nothing can be compared to NULL: write IS NULL or IS NOT NULL."),
    ("TRUE = 1", 5, "TRUE and FALSE can't be compared to a literal on their right."),
    ("a = 0.0", 4, "A decimal number must not be zero: write 0."),
    ("a = 1e400", 4, "The number is greater than a double can be."),
    ("a = 9223372036854775808", 4, "An integer must be at most 9223372036854775807."),
    ("5", 0, "An expression must be a comparison, a boolean or a property"),
    ("a = 1 AND 5", 10, "AND takes a comparison, a boolean or a property"),
]


CAUSES = [
    ("(title like 'x%')", 7, "LIKE does not exist; use CONTAINS, STARTSWITH or ENDSWITH."),
    ("a = 1 AND (b NOT LIKE 'x%')", 13, "LIKE does not exist"),
    ('(title REGEXP "x.*")', 7, "REGEXP does not exist"),
    ("a = 1 AND (lower(b) = 'x')", 16, "there are no functions; lower is a property here."),
    ("(region = upper('x'))", 15, "there are no functions; upper is a property here."),
    ("(e-env IS NOT NULL)", 2, "Property names have no hyphens. SQL92 cannot name a property e-env at all;"),
    ("a = 1 OR (x-tenant-id = '1')", 11, "SQL92 cannot name a property x-tenant-id at all;"),
    ("in-stock = 'yes'", 0, "property names have no hyphens. SQL92 cannot name a property in-stock at all;"),
    ("not-found = 'x'", 3, "property names have no hyphens. SQL92 cannot name a property not-found at all;"),
    ("user.name = 'x'", 4, "property names have no dots. SQL92 cannot name a property user.name at all;"),
    ("(order.5 = 'x')", 6, "SQL92 cannot name a property order.5 at all;"),
    ("contains = 'x'", 0, "contains is a reserved word. SQL92 cannot name a property contains at all;"),
    ("a = 1 AND (is = 5)", 11, "is is a reserved word."),
    ("(region = us-east)", 12, "if us-east is a text, write 'us-east'."),
    ("(city = new york)", 12, "if new york is a text, write 'new york'."),
    ("(day = 2020-01-01)", 11, "if 2020-01-01 is a text, write '2020-01-01'."),
    ("(v <> 1.2.3)", 9, "if 1.2.3 is a text, write '1.2.3'."),
    ("t = 12:30", 6, "if 12:30 is a text, write '12:30'."),
    ("city = 北京", 7, "if 北京 is a text, write '北京'."),
    ("mail = a@b.c", 8, "if a@b.c is a text, write 'a@b.c'."),
    ("a IN (x, y)", 6, "write 'x'."),
    ("a IN ('x', y-z)", 11, "write 'y-z'."),
    ("a STARTSWITH beijing", 13, "write 'beijing'."),
    ("a > '5'", 2, "write 5 without quotes."),
    ("TAGS = 'a' OR 'b'", 14, "write a whole comparison on both sides of OR."),
    ("a => 5", 3, "write >=."),
    ("a > = 5", 4, "write >= without a blank."),
    ("a != NULL", 2, "write IS NOT NULL."),
    ("!(a = 1)", 0, "write NOT."),
    ('a = "x"', 4, "write strings in single quotes, 'x'."),
    ("(a + 5 > 3)", 3, "there is no arithmetic."),
    ("1st = 'x'", 0, "a property name begins with a letter, _ or $."),
    ("a = ('x', 'y')", 8, "a list follows IN only."),
    ("(a = 1, b = 2)", 6, "join comparisons with AND or OR."),
    ("(a = 5 b = 6)", 7, "join comparisons with AND or OR."),
    ("(a = 1,000)", 6, "a number has no separators."),
    ("select * from t", 7, "write only the condition after WHERE."),
    ("a ＝ 5", 2, "it only looks like =; write the ASCII character."),
    ("a = ‘x’", 4, "strings stand in single quotes, '."),
    ("a =\u00a05", 3, "only ASCII white space separates words; write a plain blank."),
    ("a > ${min}", 5, "a placeholder is not replaced; write the value."),
    ("a = :min", 4, "there are no parameters; write the value."),
]
"""What people write that the language does not have, where the parser meets it, and what the reason says."""


@pytest.mark.parametrize(("text", "position", "cause"), CAUSES)
def test_a_reason_names_the_cause(text: str, position: int, cause: str) -> None:
    with pytest.raises(InvalidExpression) as refused:
        compile(text)
    assert cause.casefold() in refused.value.problem.casefold()
    assert refused.value.position == position


def test_not_has_no_two_sides() -> None:
    with pytest.raises(InvalidExpression) as refused:
        compile("NOT 5")
    assert "both sides" not in refused.value.problem


@pytest.mark.parametrize(("text", "meaning"), SAME)
def test_reads_as(text: str, meaning: str) -> None:
    compiled, meant = compile(text), compile(meaning)
    assert (compiled.predicate, compiled.error_predicate) == (meant.predicate, meant.error_predicate)


@pytest.mark.parametrize(("text", "position", "problem"), REFUSED)
def test_refuses(text: str, position: int, problem: str) -> None:
    with pytest.raises(InvalidExpression) as refused:
        compile(text)
    assert refused.value.problem.startswith(problem)
    assert refused.value.position == position


def test_the_error_points_at_the_place() -> None:
    with pytest.raises(ValueError, match="never closed") as refused:
        compile("region = 'x' AND (price > 50.0")
    assert str(refused.value).split("\n")[1:] == [
        "  region = 'x' AND (price > 50.0",
        "                   ^",
    ]
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (copy.position, str(copy)) == (17, str(refused.value))


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"a = {number}" for number in range(3_000)),
        " OR ".join(f"p{number} = 'x'" for number in range(1_500)),
        "(" * 6_000 + "a = 5" + ")" * 6_000,
        "NOT " * 5_000 + "a",
        "-" * 20_000 + "5 = a",
        "a = 1 " + "= TRUE " * 400,
    ],
    ids=["one property", "many properties", "parentheses", "NOT", "minus", "="],
)
def test_no_length_or_depth_is_too_much(text: str) -> None:
    compiled = compile(text)
    assert compiled.evaluate({"a": "5", "p7": "x"}) in (True, False, None)
    assert compiled.spark_predicate()


def test_the_longest_expression_and_one_longer() -> None:
    longest = "a = 5 AND " * 26_213 + "a = 5" + " " * 9
    assert len(longest) == LONGEST
    compiled = compile(longest)
    assert compiled.evaluate({"a": "5"}) is True
    assert compiled.predicate is compile("a = 5").predicate
    with pytest.raises(InvalidExpression, match="at most 262,144 characters") as refused:
        compile(longest + " ")
    assert refused.value.position == LONGEST


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """Java's UTF-8 has no such text, and Arrow takes none."""
    with pytest.raises(InvalidExpression, match="half of a surrogate pair"):
        compile("a CONTAINS '\ud83d'")
