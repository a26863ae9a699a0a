"""Subscriptions of every format: events, consumerFilter.json and YAML; what is wrong in them is named."""

import json
from datetime import UTC, datetime

import pytest

from filtering.subscriptions.events import (
    ConsumeFrom,
    ConsumeStart,
    Operation,
    SubscriptionEvents,
    event_line,
    parse_event,
)
from schemas.subscription_files import parse_subscriptions
from tests.captures import UNDAMAGED, capture, rows

REGISTER = {"at": 5, "op": "register", "group": "cg", "topic": "OrderEvents", "type": "SQL92", "expression": "a"}


def reasons(text: str) -> list[tuple[int, str]]:
    return [(rejected.line, rejected.reason) for rejected in parse_subscriptions(text).rejected]


@pytest.mark.parametrize("name", UNDAMAGED)
def test_the_events_of_a_capture(name: str) -> None:
    parsed = parse_subscriptions((capture(name) / "subscription_events.jsonl").read_text("utf-8"))
    recorded = rows(name, "subscription_events")
    assert not parsed.rejected
    assert [(event.at, event.operation.value, event.group) for event in parsed.events] == [
        (row["at"], row["op"], row["group"]) for row in recorded
    ]
    assert parsed.events[0].subscriptions == (
        {
            "topic": recorded[0]["topic"],
            "expression": recorded[0]["expression"],
            "type": recorded[0]["type"],
            "version": recorded[0]["sub_version"],
        },
    )


@pytest.mark.parametrize("name", UNDAMAGED)
def test_a_consumer_filter_json_tells_births_and_deaths(name: str) -> None:
    parsed = parse_subscriptions((capture(name) / "store/config/consumerFilter.json").read_text("utf-8"))
    filters = [row for row in rows(name, "subscriptions") if row["bornTime"]]
    births = {event.group: event for event in parsed.events if event.operation is Operation.REGISTER}
    assert len(births) == len(filters)
    for row in filters:
        birth = births[row["group"]]
        assert birth.at == row["bornTime"]
        assert birth.subscriptions[0]["expression"] == row["expression"]
        assert birth.subscriptions[0]["version"] == row["subVersion"]
    deaths = [event for event in parsed.events if event.operation is Operation.UNREGISTER]
    assert len(deaths) == len(births), "the broker was shut down"
    assert list(parsed.events) == sorted(parsed.events, key=lambda event: event.at)


@pytest.mark.parametrize(("dead_time", "leaves"), [(0, False), (4, False), (5, True), (6, True)])
def test_a_filter_is_dead_from_its_birth_on(dead_time: int, leaves: bool) -> None:
    """Source: ConsumerFilterData.isDead. A broker that starts sets both times alike if the filter is young."""
    entry = {
        "consumerGroup": "cg", "topic": "OrderEvents", "expression": "a", "expressionType": "SQL92",
        "clientVersion": 7, "bornTime": 5, "deadTime": dead_time,
    }  # fmt: skip
    document = {"filterDataByTopic": {"OrderEvents": {"groupFilterData": {"cg": entry}}}}
    events = parse_subscriptions(json.dumps(document)).events
    assert [event.operation for event in events] == [Operation.REGISTER, *([Operation.UNREGISTER] if leaves else [])]


def test_a_bad_entry_of_a_consumer_filter_json_is_named() -> None:
    good = {
        "consumerGroup": "cg_good",
        "topic": "OrderEvents",
        "expression": "a",
        "expressionType": "SQL92",
        "clientVersion": 7,
        "bornTime": 5,
        "deadTime": 0,
    }
    groups = {"cg_good": good, "cg_bad": {"topic": "OrderEvents"}}
    text = json.dumps({"filterDataByTopic": {"OrderEvents": {"groupFilterData": groups}}}, indent=1)
    parsed = parse_subscriptions(text)
    assert [event.group for event in parsed.events] == ["cg_good"]
    (rejected,) = parsed.rejected
    assert "cg_bad" in rejected.reason
    assert '"cg_bad"' in text.split("\n")[rejected.line - 1]
    assert reasons('{"filterDataByTopic": {')[0][0] == 1


def test_yaml_as_a_newcomer_types_it() -> None:
    text = """
# who gets what
- group: cg_paid
  topic: OrderEvents
  tag: paid || shipped
- group: cg_expensive
  topic: OrderEvents
  sql: price > 50.0
  at: 2026-11-21T06:00:00Z
- {group: cg_paid, topic: OrderEvents, tag: 007}
"""
    parsed = parse_subscriptions(text)
    assert not parsed.rejected
    first, second, third = parsed.events
    assert (first.at, first.group, first.operation) == (0, "cg_paid", Operation.REGISTER)
    assert first.subscriptions[0]["expression"] == "paid || shipped"
    assert first.subscriptions[0]["type"] == "TAG"
    assert second.subscriptions[0]["expression"] == "007"
    assert second.subscriptions[0]["version"] > first.subscriptions[0]["version"], "the later entry wins"
    assert third.at == datetime(2026, 11, 21, 6, tzinfo=UTC).timestamp() * 1000
    assert third.subscriptions[0]["type"] == "SQL92"


def test_a_namespace_in_yaml() -> None:
    text = """
- {namespace: shop, group: cg_paid, topic: OrderEvents, tag: paid}
- {namespace: shop, group: shop%cg_paid, topic: "%RETRY%cg_paid", tag: "*"}
- {namespace: shop, group: cg_trace, topic: RMQ_SYS_TRACE_TOPIC, tag: "*"}
"""
    assert [(event.group, event.subscriptions[0]["topic"]) for event in parse_subscriptions(text).events] == [
        ("shop%cg_paid", "shop%OrderEvents"),
        ("shop%cg_paid", "%RETRY%shop%cg_paid"),
        ("shop%cg_trace", "RMQ_SYS_TRACE_TOPIC"),
    ]


def test_class_filter_mode_in_every_format() -> None:
    by_class = REGISTER | {"type": "TAG", "expression": "shop.Paid", "class_filter_mode": True}
    in_yaml = "- {group: cg, topic: OrderEvents, tag: shop.Paid, class_filter_mode: true, at: 5}"
    subscription = {"topic": "OrderEvents", "expression": "shop.Paid", "type": "TAG", "version": 5}
    for text in (json.dumps(by_class), in_yaml):
        (event,) = parse_subscriptions(text).events
        assert event.subscriptions == (subscription | {"class_filter_mode": True},)
    for text in (json.dumps(by_class | {"class_filter_mode": False}), in_yaml.replace("true", "false")):
        (event,) = parse_subscriptions(text).events
        assert event.subscriptions == (subscription,)


@pytest.mark.parametrize(
    ("at", "milliseconds"),
    [
        ("1795237513466", 1795237513466),
        ("2026-11-21 06:00:00.5", 1795240800500),
        ("2026-11-21", 1795219200000),
        ("'2026-11-21T08:00:00+02:00'", 1795240800000),
    ],
)
def test_times_in_yaml(at: str, milliseconds: int) -> None:
    (event,) = parse_subscriptions(f"- {{group: cg, topic: T, tag: a, at: {at}}}").events
    assert event.at == milliseconds


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("first", ConsumeFrom.FIRST),
        ("last", ConsumeFrom.LAST),
        (1795237513466, 1795237513466),
        ("1795237513466", 1795237513466),
        ("2026-11-21T08:00:00+02:00", 1795240800000),
        ("2026-11-21", 1795219200000),
    ],
)
def test_where_a_group_begins_in_every_format(written: str | int, means: ConsumeStart) -> None:
    in_yaml = f"- {{group: cg, topic: T, tag: a, consume_from: '{written}'}}"
    for text in (json.dumps(REGISTER | {"consume_from": written}), in_yaml):
        (event,) = parse_subscriptions(text).events
        assert event.consume_from == means
        assert parse_event(event_line(event)) == event


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("- group: cg\n  topic: T", "either tag: or sql:"),
        ("- group: cg\n  topic: T\n  tag: a\n  sql: b", "not both"),
        ("- topic: T\n  tag: a", "group: is missing"),
        ("- group: cg\n  topic: T\n  tags: a", "tags: is not known"),
        ("- group: cg\n  topic: T\n  tags: a", "; did you mean tag?"),
        ("- group: cg\n  topic: T\n  tag: [a, b]", "tag: must be a text"),
        ("- group: cg\n  topic: T\n  tag:", 'tag: is empty; write "*" for every message'),
        (
            "- group: cg\n  topic: T\n  tag: a\n  at: 1795237513",
            "looks like seconds; write milliseconds, as in 1795237513000",
        ),
        ("- group: cg\n  topic: T\n  tag: a\n  at: noon", "'noon' is not a time"),
        ("- group: cg\n  topic: T\n  tag: a\n  at: 1795237513466000", "is after the year 9999; write milliseconds"),
        ("- group: cg\n  topic: T\n  tag: a\n  class_filter_mode: yes", "must be true or false, not 'yes'"),
        ("- group: cg\n  topic: T\n  tag: a\n  consume_from: newest", "must be first, last or a time: 'newest' is not"),
        ("- cg_paid", "needs group:, topic:"),
    ],
)
def test_a_bad_yaml_entry_is_told_and_the_rest_kept(entry: str, reason: str) -> None:
    parsed = parse_subscriptions("- {group: cg_good, topic: T, tag: a}\n" + entry)
    assert [event.group for event in parsed.events] == ["cg_good"]
    (rejected,) = parsed.rejected
    assert rejected.line == 2
    assert reason in rejected.reason
    assert rejected.text == entry.removeprefix("- ")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("group: cg\ntopic: T\ntag: a\n", 1, "not a list"),
        ("- group: cg\n  tag: 'a\n", 3, "not YAML"),
        ("- group: \x07\n", 1, "not YAML"),
        ("- group: cg\n  topic: T\n  tag: *\n", 3, 'a * without quotes begins an alias; write "*"'),
    ],
)
def test_what_is_no_yaml_list_is_rejected_whole(text: str, line: int, reason: str) -> None:
    (rejected,) = parse_subscriptions(text).rejected
    assert rejected.line == line
    assert reason in rejected.reason
    assert rejected.text == text


def test_two_entries_of_a_snapshot_for_one_group_and_topic() -> None:
    lines = [f"- {{group: cg, topic: T, tag: {tag}}}" for tag in "abc"] + ["- {group: cg, topic: U, tag: a}", "- no"]
    parsed = parse_subscriptions("\n".join(lines))
    assert [event.subscriptions[0]["expression"] for event in parsed.events] == ["c", "a"]
    reason = "line 3 has the same group and topic, and counts; give at: if the subscription changed"
    assert [(entry.line, entry.text, entry.reason) for entry in parsed.rejected[:2]] == [
        (1, lines[0].removeprefix("- "), reason), (2, lines[1].removeprefix("- "), reason),
    ]  # fmt: skip
    assert parsed.rejected[2].line == 5
    timed = parse_subscriptions("\n".join([lines[0], "- {group: cg, topic: T, tag: b, at: 5}"]))
    assert (len(timed.events), timed.rejected) == (2, ())


def test_an_empty_file_has_no_events() -> None:
    assert parse_subscriptions("\n# nothing yet\n") == SubscriptionEvents((), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op": "subscribe"}, "op must be one of register, heartbeat"),
        ({"at": None}, "at is missing"),
        ({"at": "now"}, "at must be a whole number of 64 bits, not 'now'"),
        ({"at": True}, "at must be a whole number"),
        ({"at": 1795237513466000}, "is after the year 9999; write milliseconds"),
        ({"at": 1795237513}, "looks like seconds; write milliseconds, as in 1795237513000"),
        ({"at": 20261126013000}, "20261126013000 has no time zone; write 2026-11-26T01:30:00+08:00"),
        ({"typ": "SQL92"}, "typ is not known; did you mean type?"),
        ({"group": ""}, "group must be a text"),
        ({"topic": 7}, "topic must be a text, not 7"),
        ({"topic": [0] * 90}, f"topic must be a text, not [{'0, ' * 19}0,…"),
        ({"expression": 5}, "expression must be a text"),
        ({"type": ["SQL92"]}, "type must be a text"),
        ({"sub_version": 1.5}, "sub_version must be a whole number"),
        ({"class_filter_mode": "yes"}, "class_filter_mode must be true or false, not 'yes'"),
        ({"op": "pull_subscription", "class_filter_mode": True}, "sends no subscription with its pulls"),
        ({"op": "unregister", "client_id": "10.0.0.7@1"}, "an unregister has a client_id or a topic, not both"),
        ({"consume_from": "newest"}, "consume_from must be first, last or a time: 'newest' is not a time"),
        ({"consume_from": None}, "consume_from must be first, last or a time"),
        ({"consume_from": True}, "consume_from must be first, last or a time"),
        ({"consume_from": -5}, "consume_from must be first, last or a time"),
        ({"consume_from": 1795237513}, "looks like seconds; write milliseconds, as in 1795237513000"),
        ({"consume_from": "20261126013000"}, "has no time zone; write 2026-11-26T01:30:00+08:00"),
        ({"op": "heartbeat"}, "subscriptions of a heartbeat must be a list"),
        (
            {"op": "heartbeat", "subscriptions": [{"topic": "T", "expresion": "a"}]},
            "expresion is not known; did you mean expression?",
        ),
    ],
)
def test_a_bad_line_is_told_and_the_rest_kept(change: dict[str, object], reason: str) -> None:
    bad = json.dumps(REGISTER | change)
    parsed = parse_subscriptions(f"{json.dumps(REGISTER)}\n\n{bad}\n")
    assert [event.group for event in parsed.events] == ["cg"]
    (rejected,) = parsed.rejected
    assert (rejected.line, rejected.text) == (3, bad)
    assert reason in rejected.reason


def test_other_fields_of_an_event_are_ignored() -> None:
    (event,) = parse_subscriptions(json.dumps(REGISTER | {"note": "by hand", "host": "10.0.0.7"})).events
    assert parse_subscriptions(json.dumps(REGISTER)).events == (event,)


def test_an_event_that_is_not_utf_8_is_rejected_as_a_whole() -> None:
    line = json.dumps(REGISTER | {"note": "bezahlt f?r"}).encode().replace(b"?", b"\xfc")
    assert reasons(line.decode("utf-8", "surrogateescape")) == [(1, "not UTF-8")]


def test_an_event_without_an_expression() -> None:
    """To the broker, no expression means every message, which a user hardly wants without saying so."""
    without = {name: value for name, value in REGISTER.items() if name != "expression"}
    assert reasons(json.dumps(without)) == [(1, 'expression is missing; "*" takes every message')]
    (event,) = parse_subscriptions(json.dumps(without | {"expression": None})).events
    assert event.subscriptions[0]["expression"] is None


def test_lines_that_are_no_json_objects() -> None:
    assert [line for line, _ in reasons(f"{json.dumps(REGISTER)}\n{{torn\n[]\n")] == [2, 3]


def test_no_version_follows_the_greatest() -> None:
    first = REGISTER | {"sub_version": 2**63 - 1}
    parsed = parse_subscriptions("\n".join(map(json.dumps, (first, REGISTER | {"at": 6}))))
    assert [event.subscriptions[0]["version"] for event in parsed.events] == [2**63 - 1, 2**63 - 1]


def test_heartbeats_and_departures_name_their_client() -> None:
    heartbeat = {
        "at": 7,
        "op": "heartbeat",
        "group": "cg",
        "client_id": "10.0.0.7@1",
        "subscriptions": [{"topic": "OrderEvents", "expression": "paid"}],
    }
    leave = {"at": 6, "op": "unregister", "group": "cg", "client_id": "10.0.0.7@1"}
    first, second = parse_subscriptions(f"{json.dumps(heartbeat)}\n{json.dumps(leave)}").events
    assert (first.operation, first.topic, first.client_id) == (Operation.UNREGISTER, None, "10.0.0.7@1")
    assert second.subscriptions == ({"topic": "OrderEvents", "expression": "paid", "type": "TAG", "version": 7},)


def test_a_born_time_beyond_the_calendar_is_told() -> None:
    entry = {
        "consumerGroup": "cg", "topic": "T", "expression": "a = 1", "expressionType": "SQL92", "bornTime": 2**62,
        "deadTime": 0, "clientVersion": 1,
    }  # fmt: skip
    text = json.dumps({"filterDataByTopic": {"T": {"groupFilterData": {"cg": entry}}}})
    ((_, reason),) = reasons(text)
    assert "is after the year 9999" in reason
