"""What the linter says of an expression."""

import pytest

from filtering.sql92 import EvaluationError, compile

FINDINGS = [
    ("a = 5", []),
    ("a = 5 b = 6 OR TRUE", [("ignored-input", 6)]),
    ("a LIKE 'x%'", [("ignored-input", 2)]),
    ("b = 1 AND a LIKE 'x%'", [("ignored-input", 12)]),
    ("flag AND b = 1 c = 2", [("bare-property", 0), ("ignored-input", 15)]),
    ("a = 5 + 3", [("ignored-input", 6)]),
    ("NOT a <> 5", [("not-binds-tightly", 0)]),
    ("NOT (a) = 'x'", [("not-binds-tightly", 0)]),
    ("NOT a IS NULL", [("not-binds-tightly", 0)]),
    ("NOT a CONTAINS 'x' OR b = 1", [("not-binds-tightly", 0)]),
    ("NOT a", [("bare-property", 4)]),
    ("flag", [("bare-property", 0)]),
    ("-a = 5", [("negated-property", 0)]),
    ("5 <> -a", [("negated-property", 5)]),
    ("NOT (a = 5)", []),
    ("price > 50", [("integer-literal", 6)]),
    ("price BETWEEN 5 AND 9", [("integer-literal", 6)]),
    ("x BETWEEN price AND 5", []),
    ("x NOT BETWEEN 5 AND price", []),
    ("5 BETWEEN price AND 9.0", [("integer-literal", 2)]),
    ("0 BETWEEN 5 AND price", [("always-false", 2)]),
    ("price > 50.0", []),
    ("qty > 50", []),
    ("a = 'x' OR b", [("bare-property", 11)]),
    ("TRUE", [("always-true", 0)]),
    ("a = 5 AND FALSE", [("never-true", 6)]),
    ("FALSE", [("always-false", 0)]),
    ("NULL", [("always-null", 0)]),
    ("a <> -b", [("negated-property", 5)]),
    ("TAGS = 'TagA || TagB'", [("impossible-tag", 5)]),
    ("TAGS IN ('TagA', 'TagB')", []),
    ("TAGS IN (' TagA', '')", [("impossible-tag", 5), ("impossible-tag", 5)]),
    ("TAGS = '\u00a0TagA'", []),
    ("a NOT BETWEEN 9 AND 5", [("reversed-not-between", 6)]),
    ("a NOT BETWEEN 5 AND 9", []),
    ("region = beijing", [("unquoted-text", 9)]),
    ("region <> (beijing) AND b = 1", [("unquoted-text", 11)]),
    ("PAID = TAGS", [("unquoted-text", 0)]),
    ("region = beijing OR shanghai", [("unquoted-text", 9), ("bare-property", 20)]),
    ("'region' = 'x'", [("quoted-name", 0)]),
    ("a = 1 AND ('b') <> 'x'", [("quoted-name", 11)]),
    ("'region' IS NOT NULL OR 'b' CONTAINS 'x'", [("quoted-name", 0), ("quoted-name", 24)]),
    ("'vip' = TRUE", [("quoted-name", 0)]),
    ("'us-east' = region AND '1' = '1'", []),
    ("price = oldPrice OR minQty <> max_qty", []),
    ("weight < height", []),
    ("TAG = 'a'", [("misnamed-property", 0)]),
    ("a = 1 OR tags IN ('a', 'b')", [("misnamed-property", 14)]),
    ("key = 'x' AND KEY IS NULL", [("misnamed-property", 0), ("misnamed-property", 14)]),
    ("KEYS = 'x' OR tagged = 'a'", []),
    ("region = '${region}'", [("placeholder", 9)]),
    ("region IN ('a', '#{b}')", [("placeholder", 7)]),
    ("region CONTAINS '${a:b}'", [("placeholder", 7)]),
]


@pytest.mark.parametrize(("text", "expected"), FINDINGS)
def test_finds(text: str, expected: list[tuple[str, int]]) -> None:
    findings = compile(text).findings
    assert [(finding.code, finding.position) for finding in findings] == expected
    for finding in findings:
        assert finding.sentence.endswith((".", ": nothing is delivered."))
        assert finding.suggestion.endswith(".")


def test_says_from_which_character_input_is_ignored() -> None:
    (finding,) = compile("a = 5 and_so_on = 'x'").findings
    assert "before character 7" in finding.sentence
    assert "\"and_so_on = 'x'\"" in finding.sentence


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("a LIKE 'x%'", "LIKE does not exist; use CONTAINS, STARTSWITH or ENDSWITH."),
        ("e-env IS NOT NULL", "Property names have no hyphens. SQL92 cannot name a property e-env at all;"),
        ("a = 'x' AND x-tenant = '1'", "Property names have no hyphens. SQL92 cannot name a property x-tenant at all;"),
        ("5 < x-size", "Property names have no hyphens. SQL92 cannot name a property x-size at all;"),
        ("lower(region) = 'x'", "There are no functions; lower is a property here."),
        ("a + 5 > 3", "There is no arithmetic."),
        ("a = 'it's'", "A quote inside a string is written twice, as in 'it''s'."),
        ("region = us-east", "If us-east is a text, write 'us-east'."),
        ("ip = 10.0.0.1", "If 10.0.0.1 is a text, write '10.0.0.1'."),
        ("where a = 1", "Write only the condition, without where."),
        ("a = 5 -- c", "A comment that begins with -- must end with a line break."),
        ("a = 1 )", "No parenthesis is open here."),
        ("a = 5 b = 6", "Join comparisons with AND or OR."),
        ("a equals 'x'", "There is no operator equals."),
        ("a = 1 IS NULL > 5", "Remove the rest, or join it with AND or OR."),
    ],
)
def test_says_why_the_rest_is_ignored(text: str, suggestion: str) -> None:
    assert [each.suggestion for each in compile(text).findings if each.suggestion.startswith(suggestion)]


@pytest.mark.parametrize(
    ("text", "corrections"),
    [
        ("region = beijing OR shanghai", ["region = 'shanghai'"]),
        ("region = 'beijing' OR shanghai OR (xian)", ["region = 'shanghai'", "region = 'xian'"]),
        ("a = 1 OR (region = beijing OR shanghai)", ["region = 'shanghai'"]),
        ("region <> beijing AND shanghai AND xian", ["region <> 'shanghai'", "region <> 'xian'"]),
        ("c = red OR blue OR size = xl OR xs", ["c = 'blue'", "size = 'xs'"]),
        ("region = beijing AND shanghai", []),
        ("a = 1 OR vip", []),
        ("a IS NULL OR vip OR paid", []),
    ],
)
def test_a_property_alone_may_be_another_value_of_the_one_before(text: str, corrections: list[str]) -> None:
    advice = [each.suggestion for each in compile(text).findings if each.code == "bare-property"]
    suggestions = [
        each.split("write ")[1].split("; otherwise")[0] for each in advice if each.startswith("If it is a value")
    ]
    assert suggestions == corrections


@pytest.mark.parametrize(
    ("text", "failing"),
    [
        ("price > 50", "55.10"),
        ("price BETWEEN 10.0 AND 20", "55.10"),
        ("price BETWEEN 60.0 AND 70", "70.5"),
        ("price NOT BETWEEN 60.0 AND 70", "70.5"),
    ],
)
def test_an_integer_is_shown_with_an_amount_on_which_the_broker_fails(text: str, failing: str) -> None:
    expression = compile(text)
    (finding,) = expression.findings
    assert f"price = '{failing}' is an error" in finding.sentence
    with pytest.raises(EvaluationError):
        expression.evaluate({"price": failing})


@pytest.mark.parametrize(
    "text", ["NOT a = 'x'", "a LIKE 'x%'", "flag AND b = 1", "-a > 5", "a = 'x' AND FALSE", "NULL"]
)
def test_whatever_the_cause_says_that_nothing_is_delivered(text: str) -> None:
    (finding,) = compile(text).findings
    assert finding.sentence.endswith(": nothing is delivered.")
