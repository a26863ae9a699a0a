"""Malicious configurations and subscriptions: time and memory are bounded, and one line names the place."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from filtering.broker_config import BrokerConfig, InvalidBrokerConfig, read_properties
from filtering.subscriptions.history import subscription_history
from jobs import nightly
from jobs.night.inputs import read_broker_config
from schemas.errors import UsageError
from schemas.subscription_files import parse_subscriptions
from schemas.yaml_input import InvalidYaml, load
from tests.captures import capture
from tests.faults.stores import FaultyBroker
from tests.nights.commands import GOOD_EVENT, Run, one_line

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MANY = 20_000


@contextmanager
def seconds(most: float) -> Iterator[None]:
    """Quadratic code would take minutes."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < most


def rejected(text: str) -> list[tuple[int, str]]:
    """The invalid lines of a subscriptions file, and their reasons."""
    with seconds(5):
        lines = parse_subscriptions(text).rejected
    assert all(len(each.text) <= len(text) for each in lines)
    return [(each.line, each.reason) for each in lines]


def consumer_filter(**fields: Any) -> str:
    entry = {
        "consumerGroup": "g", "topic": "T", "expression": "a", "expressionType": "SQL92", "bornTime": 1, "deadTime": 0,
        "clientVersion": 1,
    } | fields  # fmt: skip
    return json.dumps({"filterDataByTopic": {"T": {"groupFilterData": {"g": entry}}}})


def test_yaml_that_stands_for_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(BOMB)
    assert rejected(BOMB) == [(2, "aliases are not supported: write the value out")]
    with seconds(5), pytest.raises(UsageError, match="line 2: aliases are not supported"):
        read_broker_config(file)


@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_deep_nests(depth: int) -> None:
    lists = "[" * depth + "]" * depth
    assert rejected(f'{GOOD_EVENT}\n{{"op": {lists}}}') == [(2, "not JSON that can be read: nested too deep")]
    nest = '{"a": ' * depth + "1" + "}" * depth
    [(line, reason)] = rejected(f'{{"filterDataByTopic": {nest}}}')
    assert (line, reason.endswith("nested too deep")) == (1, True)
    for text in ("- " * depth, "[" * depth, "- group: a\n- " + "{a: " * depth):
        [(line, reason)] = rejected(text)
        assert (line <= 2, reason) == (True, "nested more than 100 levels deep")
    with pytest.raises(InvalidYaml, match="nested more than 100 levels deep"):
        load("[" * depth)


def test_a_line_of_200_megabytes(run: Run, tmp_path: Path) -> None:
    long = "x" * (200 << 20)
    assert rejected(f'{GOOD_EVENT}\n{{"op": "{long}"}}') == [(2, "longer than 1,048,576 characters")]
    assert rejected(f"- group: {long}") == [(1, "longer than 67,108,864 characters")]
    [(line, reason)] = rejected(f'{{"filterDataByTopic": "{long}{long}"}}')
    assert (line, reason) == (1, "not a consumerFilter.json of RocketMQ: longer than 268,435,456 characters")
    with seconds(5), pytest.raises(InvalidBrokerConfig, match="line 2 is longer than 1,048,576 characters"):
        read_properties(f"brokerName=b\nnamesrvAddr={long}")
    file = tmp_path / "events.jsonl"
    file.write_text(f'{{"op": "{long}"}}')
    given = ("--store", capture("small") / "store", "--warehouse", tmp_path / "w")
    ended = run(nightly, *given, "--subscriptions", file)
    assert (ended.code, ended.out, one_line(ended.error)) == (2, "", True)
    assert f"{file} has no subscription (line 1: longer than 1,048,576 characters)" in ended.error


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"expression": 5}, "expression must be a text, not 5"),
        ({"topic": ["T"]}, "topic must be a text, not ['T']"),
        ({"bornTime": float("inf")}, "bornTime must be a whole number of 64 bits, not inf"),
        ({"deadTime": 10**400}, "deadTime must be a whole number of 64 bits, not a longer one"),
        ({"clientVersion": True}, "clientVersion must be a whole number of 64 bits, not True"),
        ({"expression": "a = '\ud800'"}, "expression contains half of a surrogate pair, which is not valid text"),
        ({"consumerGroup": "\udc00"}, "consumerGroup contains half of a surrogate pair, which is not valid text"),
    ],
)
def test_a_field_of_a_consumer_filter_that_is_another_thing(fields: dict[str, Any], reason: str) -> None:
    text = consumer_filter(**fields).replace("Infinity", "1e400")
    assert rejected(text) == [(1, f"the filter of g lacks a field or has a bad one: {reason}")]


def test_a_number_of_5000_digits() -> None:
    [(line, reason)] = rejected('{"at": ' + "9" * 5_000 + "}")
    assert (line, reason) == (1, "not JSON that can be read: a number is too long")


def test_a_bad_consumer_filter_in_the_store_is_quarantined(run: Run, broker: FaultyBroker) -> None:
    (broker.store(1) / "config" / "consumerFilter.json").write_text(consumer_filter(topic=["T"]))
    given = ("--store", broker.store(1), "--warehouse", broker.warehouse)
    ended = run(nightly, *given)
    assert ended.code == 0, ended.error
    assert "quarantined: consumerFilter.json, line 1: the filter of g lacks a field" in ended.out


@pytest.mark.parametrize("damaged", [None, "", "{"])
def test_a_consumer_filter_in_the_store_that_is_missing_or_damaged_has_a_backup(
    run: Run, broker: FaultyBroker, damaged: str | None
) -> None:
    config = broker.store(1) / "config"
    if damaged is not None:
        (config / "consumerFilter.json").write_text(damaged)
    (config / "consumerFilter.json.bak").write_text(consumer_filter())
    ended = run(nightly, "--store", broker.store(1), "--warehouse", broker.warehouse)
    assert (ended.code, "quarantined: consumerFilter" in ended.out) == (0, False)
    assert "1 in subscriptions" in ended.out


def test_many_bad_entries() -> None:
    assert len(rejected('{"op": "sing"}\n' * MANY)) == MANY
    assert len(rejected("- group: g\n" * MANY)) == MANY
    entries = {f"g{number}": {"expression": number} for number in range(MANY)}
    text = json.dumps({"filterDataByTopic": {"T": {"groupFilterData": entries}}}, indent=1)
    rejections = rejected(text)
    assert len(rejections) == MANY
    assert text.split("\n")[rejections[MANY - 1][0] - 1].strip().startswith(f'"g{MANY - 1}"')


def register(at: int, group: str, topic: str, expression: str = "a > 1") -> str:
    fields = {"at": at, "op": "register", "group": group, "topic": topic, "type": "SQL92", "expression": expression}
    return json.dumps(fields)


@pytest.mark.parametrize(
    "lines",
    [
        [register(at, "g", f"topic_{at}") for at in range(3_000)],
        [register(at, f"g{at}", "T") for at in range(MANY)],
        [register(at, "g", "T", f"a > {at % 7}") for at in range(MANY)],
        [
            json.dumps(
                {
                    "at": at, "op": "heartbeat", "group": "g", "client_id": str(at),
                    "subscriptions": [
                        {"topic": f"topic_{i}", "type": "SQL92", "expression": "a > 1", "sub_version": at}
                        for i in range(3_000)
                    ],
                }
            )
            for at in range(3)
        ],
    ],
    ids=["topics of a group", "groups", "changes of one subscription", "heartbeats of 3,000 topics"],
)  # fmt: skip
def test_many_events(lines: list[str]) -> None:
    with seconds(15):
        events = parse_subscriptions("\n".join(lines))
        assert len(subscription_history(events.events, BrokerConfig())) >= 3_000
    assert events.rejected == ()


def test_numbers_of_a_broker_that_would_take_all_memory() -> None:
    for text, reason in (
        ("expectConsumerNumUseFilter=2000000000", "more than 1,000,000"),
        ("mappedFileSizeCommitLog=0", "a file size must be 1 or more"),
    ):
        with seconds(1), pytest.raises(InvalidBrokerConfig, match=reason):
            read_properties(text)
    with seconds(1):
        (line,) = read_properties(f"expectConsumerNumUseFilter={'9' * 5_000}").misread
    assert len(line) < 300


def test_a_configuration_of_one_line_in_many_pieces() -> None:
    with seconds(5):
        read = read_properties("brokerName=" + "b\\\n" * 200_000).config
    assert read.broker_name == "b" * 200_000


def test_a_character_that_java_writes_in_two() -> None:
    assert read_properties("brokerName=\\ud83d\\udc18 \\ud83d").config.broker_name == "\N{ELEPHANT} \ufffd"
