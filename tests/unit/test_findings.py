"""Findings that the subscriptions alone show, and why expressions fail on messages."""

import pyarrow as pa
import pytest

from filtering import sql92
from filtering.broker_config import BrokerConfig
from filtering.delivery.message_filter import MessageFilter, message_filter
from filtering.findings import (
    FilterOnMessages,
    TopicMessages,
    expectations,
    filters_on_messages,
    static_findings,
    unmet,
)
from filtering.matcher.column import Column
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_codes
from schemas.subscription_files import parse_subscriptions
from schemas.yaml_input import load


def in_force(text: str) -> list[SubscriptionRow]:
    """``text``: a line a group, with tag or sql, and the filter, in which an underscore is a blank."""
    lines = (line.split(None, 2) for line in text.strip().splitlines())
    entries = [f"- {{group: {group}, topic: T, {kind}: '{rest.replace('_', ' ')}'}}" for group, kind, rest in lines]
    return subscription_history(parse_subscriptions("\n".join(entries)).events, BrokerConfig())


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        ("g sql a >", [("error", "does-not-compile")]),
        ("g tag ||", [("error", "does-not-compile")]),
        ("g tag _||_", [("error", "never-matches")]),
        ("g tag a || *", [("warn", "literal-star")]),
        ("g tag a || b", []),
        ("g tag price_>_5", [("warn", "sql-as-tag")]),
        ("g tag a || region_=_''x''", [("warn", "sql-as-tag")]),
        ("g tag a_|_b", [("warn", "one-tag")]),
        ("g tag a,b", [("warn", "one-tag")]),
        ("g tag x-*", [("warn", "wildcard-tag")]),
        ("g tag a || x*y", [("warn", "wildcard-tag")]),
        ("g tag !x-*", [("warn", "negated-tag")]),
        ("g tag not_x", [("warn", "negated-tag")]),
        ("g tag a_&&_b", [("warn", "one-tag")]),
        ("g tag a_and_b", [("warn", "one-tag")]),
        ("g tag a_OR_b", [("warn", "one-tag")]),
        ("g tag a\uff5c\uff5cb", [("warn", "one-tag")]),
        ("g tag a\u3001b", [("warn", "one-tag")]),
        ('g tag "a"', [("warn", "quoted-tag")]),
        ("g tag \u2018a\u2019 || b", [("warn", "quoted-tag")]),
        ("g tag ${tag}", [("warn", "placeholder")]),
        ("g sql region = beijing", [("warn", "unquoted-text")]),
        ("g sql tag = ''x''", [("warn", "misnamed-property")]),
        ("g tag a-b || in_stock || (c) || TRUE || 5 || x.y:z", []),
        ("g tag *", []),
        ("g sql a = 5 AND FALSE", [("error", "never-true")]),
        ("g sql flag", [("error", "bare-property")]),
        ("g sql flag = TRUE", []),
        ("g sql TRUE", [("warn", "always-true")]),
        ("g sql a = 5 + 3", [("warn", "ignored-input")]),
        ("g sql price > 50", [("info", "integer-literal")]),
        ("g sql price > 50.0", []),
        ("g sql NOT a <> 5", [("warn", "not-binds-tightly")]),
        ("g sql NOT a = ''x''", [("error", "not-binds-tightly")]),
        ("g sql a LIKE ''x%''", [("error", "ignored-input")]),
        ("g sql -a = 5", [("error", "negated-property")]),
        ("g sql a = ''x'' OR flag", [("warn", "bare-property")]),
    ],
)
def test_static_findings(subscription: str, expected: list[tuple[str, str]]) -> None:
    rows = in_force(subscription)
    assert [(each.severity, each.code) for each in static_findings(rows)] == expected


def test_an_expectation_may_be_of_one_group() -> None:
    (row,) = in_force("g sql n > 5.0")
    expected = expectations(load("- {pass: {n: '1'}, group: other}\n- {pass: {n: '2'}, group: g}\n- pass: {n: '3'}"))
    assert [line.split(" (")[0] for line in unmet(expected, row)] == ["g: message 2", "g: message 3"]


@pytest.mark.parametrize("text", ["[]", "pass: {n: '1'}", ""])
def test_expectations_are_a_list(text: str) -> None:
    with pytest.raises(ValueError, match="not a list; begin each message with"):
        expectations(load(text))


def test_groups_that_get_the_same_messages_are_named_once() -> None:
    rows = in_force("g1 sql TAGS IN (''a'', ''b'')\ng2 tag b||a\ng3 tag b\ng4 tag *\ng5 sql TRUE")
    (finding,) = (each for each in static_findings(rows) if each.code == "equivalent-groups")
    assert (finding.consumer_group, finding.text) == (
        "g1",
        "gets the same messages as g2, though their filters are written differently",
    )
    assert not [each for each in static_findings(in_force("g1 tag a\ng2 tag b")) if each.code == "equivalent-groups"]


def on_messages(expression: str, **values: list[str | None]) -> FilterOnMessages:
    compiled = sql92.compile(expression)
    one = MessageFilter("g", "T", expression=compiled.predicate, failure=compiled.error_predicate)
    count = len(next(iter(values.values())))
    columns = {name: Column(pa.array(texts, pa.string())) for name, texts in values.items()}
    (filter_matches,) = filters_on_messages([one], [compiled], TopicMessages(count, columns, pa.array([0] * count)))
    return filter_matches


@pytest.mark.parametrize(
    ("expression", "texts", "remedies"),
    [
        ("price > 50", ["12.50", "70"], ["price is a decimal there, such as '12.50'; write 50.0"]),
        ("price BETWEEN 5 AND 90L", ["1.5"], ["price is a decimal there, such as '1.5'; write 5.0 and 90.0"]),
        ("price > -3", [" 5"], ["price is not a plain integer there, such as ' 5'; write -3.0"]),
        ("price > 0", ["1.5"], ["price is a decimal there, such as '1.5'; write 0.01 or so instead of 0"]),
        ("price > 5", ["3000000000"], ["price is greater than an int there, such as '3000000000'; write 5.0"]),
        ("price > 5", ["us"], ["price is not a number there, such as 'us'; compare it with a text, price = 'us'"]),
        ("price > 5.0", ["n/a", "1", "2"], ["price is not a number there, such as 'n/a'; let producers send numbers"]),
        ("price > 5", [""], ["price is empty there; let producers send numbers"]),
        ("price > 5", ["6", None], []),
        ("price = 'us' OR price > 5", ["us"], []),
    ],
)  # fmt: skip
def test_why_an_expression_fails(expression: str, texts: list[str | None], remedies: list[str]) -> None:
    assert on_messages(expression, price=texts).remedies == remedies


def test_the_tags_that_share_a_hash_are_named() -> None:
    (row,) = in_force("g tag Aa")
    tags = pa.array(["Aa", "BB", "BB", "C", None])
    messages = TopicMessages(5, {"TAGS": Column(tags)}, tags_codes(tags))
    one = message_filter(row, [row], BrokerConfig())
    assert one is not None
    (filter_matches,) = filters_on_messages([one], [None], messages)
    assert (filter_matches.matched, filter_matches.collided, filter_matches.colliding_tags) == (1, 2, ["BB"])
