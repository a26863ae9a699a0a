"""How two filters relate: what is claimed holds on every message, and the shown messages tell the filters apart."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filtering import sql92
from filtering.predicate import FALSE, TRUE, Predicate, TextIn, holds
from filtering.relation import NONE, Kind, Relation, Trait, common_traits, relation, satisfying
from tests.depth import examples
from tests.unit.matcher import random_work
from tests.unit.sql92.generator import NAMES, VALUES, Generator


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("a = 'x' AND b = 'y'", "b = 'y' AND a = 'x'", Kind.EQUIVALENT),
        ("a > 5 OR a <= 5", "a < 7 OR a >= 7", Kind.EQUIVALENT),
        ("a STARTSWITH 'xy'", "a STARTSWITH 'xy' AND a CONTAINS 'y'", Kind.EQUIVALENT),
        ("a > 5", "a > 3", Kind.WIDER),
        ("region = 'x' AND price > 50.0", "price > 50.0", Kind.WIDER),
        ("price > 50", "price > 50.0", Kind.WIDER),
        ("price > 50.0", "price > 60.0 AND region IN ('x', 'y')", Kind.NARROWER),
        ("a IS NULL", "b IS NULL", Kind.OVERLAPPING),
        ("a = 'x'", "a IN ('y', 'z')", Kind.DISJOINT),
        ("a > 5", "a < 5", Kind.DISJOINT),
        ("a = b", "a <> b", Kind.DISJOINT),
        ("a > b", "a > c", Kind.OVERLAPPING),
        ("level > 3 AND color <> 'blue'", "level > 2", Kind.WIDER),
        ("level > 2", "level > 3 OR color = 'blue'", Kind.OVERLAPPING),
        ("flag = TRUE", "flag > 5", Kind.DISJOINT),
        ("a > 2147483646", "a = 5", Kind.DISJOINT),
        ("a > 2147483646 AND a <> 2147483647", "a = 5", Kind.WIDER),
    ],
)
def test_relation(old: str, new: str, kind: Kind) -> None:
    before, after = sql92.compile(old).predicate, sql92.compile(new).predicate
    result = relation(before, after)
    assert result.kind is kind
    check_messages(result, before, after)
    mirrored = {Kind.WIDER: Kind.NARROWER, Kind.NARROWER: Kind.WIDER}.get(kind, kind)
    assert relation(after, before).kind is mirrored


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a STARTSWITH 'ab' AND a ENDSWITH 'bc'", "abc"),
        ("a > 1.0 AND a < 1.0000000000000004", "1.0000000000000002"),
        ("a = 9007199254740993", "9007199254740993"),
    ],
)
def test_the_only_example_is_found(expression: str, text: str) -> None:
    assert satisfying(sql92.compile(expression).predicate) == {"a": text}


def test_integers_in_other_digits_are_told_apart_from_what_people_write() -> None:
    result = relation(sql92.compile("price > 50").predicate, sql92.compile("price > 50.0").predicate)
    assert (result.kind, result.plain_numbers, result.only_new) == (Kind.WIDER, True, {"price": "51.0"})
    assert not relation(sql92.compile("price > 50.0").predicate, sql92.compile("price > 40.0").predicate).plain_numbers


def test_tags_and_expressions_are_compared() -> None:
    assert relation(TextIn("TAGS", frozenset({"a"})), sql92.compile("TAGS = 'a'").predicate).kind is Kind.EQUIVALENT
    assert relation(TRUE, sql92.compile("TAGS = 'a'").predicate).kind is Kind.NARROWER
    assert relation(sql92.compile("a = 'x'").predicate, FALSE).kind is Kind.NARROWER


def test_filters_of_very_many_properties_are_compared() -> None:
    old = sql92.compile("a = 'x'").predicate
    new = sql92.compile(" OR ".join(f"p{i} = 'x'" for i in range(500))).predicate
    result = relation(old, new)
    assert (result.kind, result.only_old) == (Kind.OVERLAPPING, {"a": "x"})
    check_messages(result, old, new)


def check_messages(result: Relation, old: Predicate, new: Predicate) -> None:
    """The messages that are shown do what they are shown for."""
    for message, expected in (
        (result.only_old, (True, False)),
        (result.only_new, (False, True)),
        (result.both, (True, True)),
    ):
        assert message is None or (holds(old, message), holds(new, message)) == expected


def check_claim(result: Relation, old: Predicate, new: Predicate, message: dict[str, str]) -> None:
    """What is claimed holds on a message."""
    has_other_digits = any(c.isdigit() and not c.isascii() for text in message.values() for c in text)
    if result.plain_numbers and has_other_digits:
        return
    before, after = holds(old, message), holds(new, message)
    match result.kind:
        case Kind.EQUIVALENT:
            assert before == after
        case Kind.WIDER:
            assert after or not before
        case Kind.NARROWER:
            assert before or not after
        case Kind.DISJOINT:
            assert not (before and after)


def pair_of(random: Random) -> tuple[Predicate, Predicate]:
    """Two expressions that often have to do with each other."""

    def compiled(text: str) -> sql92.CompiledExpression | None:
        try:
            return sql92.compile(text)
        except sql92.InvalidExpression:
            return None

    generator = Generator(random)
    texts = [generator.expression() for _ in range(3)]
    first, second, third = (f"({text})" for text in texts)
    ways = [
        (first, second),
        (first, f"{first} AND {second}"),
        (first, f"{first} OR {second}"),
        (f"{first} AND {second}", f"{second} AND {first}"),
        (f"{first} AND ({second} OR {third})", f"({first} AND {second}) OR ({first} AND {third})"),
        (first, f"NOT {first}"),
        (f"{first} OR {second}", f"NOT (NOT {first} AND NOT {second})"),
    ]
    old, new = (compiled(text) for text in random.choice(ways))
    if old is None or new is None:
        return pair_of(random)
    return old.predicate, new.predicate


def messages_of(random: Random, count: int) -> list[dict[str, str]]:
    return [{name: random.choice(VALUES) for name in NAMES if random.random() < 0.75} for _ in range(count)]


def test_claims_about_random_pairs_hold() -> None:
    random = Random(15)
    messages = messages_of(random, 60)
    kinds = []
    for _ in range(examples(100, deep=700)):
        old, new = pair_of(random)
        result = relation(old, new)
        kinds.append(result.kind)
        check_messages(result, old, new)
        for message in messages:
            check_claim(result, old, new, message)
    assert set(kinds) == set(Kind)
    assert kinds.count(Kind.UNKNOWN) < len(kinds) / 10


@settings(max_examples=examples(12, deep=1_000), deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(st.randoms(use_true_random=False))
def test_a_message_satisfies_and_nothing_else_is_ruled_out(random: Random) -> None:
    predicate = random_work.predicate(random, 2)
    answer = satisfying(predicate)
    if isinstance(answer, dict):
        assert holds(predicate, answer)
    elif answer is NONE:
        assert not any(holds(predicate, message) for message in random_work.messages(random, 40))


def test_what_messages_have_in_common() -> None:
    system = {"WAIT": "true", "UNIQ_KEY": "AC11", "DLQ_ORIGIN_TOPIC": "OrderEvents", "_SYS_MSG_PRIORITY_": "1"}
    changed = [{"region": "us", "price": str(n), "id": f"m{n}"} | system for n in range(10, 20)]
    others = [{"region": "us" if n % 2 else "eu", "price": str(n), "id": f"m{n}", "note": "x"} for n in range(30)]
    assert Trait("name", ("O'Brien",), 1.0, 0.0).text == "name = 'O''Brien'"
    assert common_traits(changed, others) == [
        Trait("note", (), 1.0, 0.0),
        Trait("price", ("10", "19"), 1.0, 10 / 30),
        Trait("region", ("us",), 1.0, 0.5),
    ]
    assert [trait.text for trait in common_traits(changed, others)] == [
        "note is missing", "price is from 10 to 19", "region = 'us'",
    ]  # fmt: skip
    assert common_traits([], others) == []
