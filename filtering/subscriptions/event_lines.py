"""Subscription events as JSON lines: one event per line, in any order.

    {"at": 1795237513466, "op": "register", "group": "cg_paid", "topic": "OrderEvents",
     "type": "SQL92", "expression": "price > 5", "sub_version": 1795237493517, "consume_from": "first"}
    {"at": 1795237514608, "op": "pull_subscription", …as register…}
    {"at": 1795237522243, "op": "unregister", "group": "cg_paid", "topic": "OrderEvents"}
    {"at": 1795237530000, "op": "heartbeat", "group": "cg_paid", "client_id": "10.0.0.7@4711",
     "subscriptions": [{"topic": "OrderEvents", "type": "TAG", "expression": "paid", "sub_version": 7}]}
    {"at": 1795237540000, "op": "reset_offset", "group": "cg_paid", "topic": "OrderEvents",
     "queue_id": 2, "offset": 140}
    {"at": 1795237540000, "op": "reset_offset", "group": "cg_paid", "topic": "OrderEvents", "to": 1795237530000}

``client_id`` is the client that registers or unregisters, and may be absent. An unregister with it is of this client,
which leaves the group; one with ``topic`` is of the group, which leaves the topic; one without either is of the group,
which leaves all topics. What is sent with pulls counts for the whole group, whichever client sends it.

A client stays until it unregisters. A broker also removes a client if its connection closes, or if it is silent for
channelExpiredTimeout, 120 s (ConsumerManager): add an unregister if that happened.

A reset by time (``to`` in ms; ``timestamp`` in RocketMQ's ResetOffsetRequestHeader) is of all queues of the topic, or
with ``queue_id`` of one. It goes to the first message that was stored then or later.

A missing ``type`` means TAG, a missing ``sub_version`` the time of the event, and a missing ``consume_from`` means
``last``, as in RocketMQ's client; others are ``first``, and a time in ms or as an ISO time. ``"class_filter_mode":
true`` marks a subscription by filter class, which takes every message.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from filtering.subscription_data import TAG, Subscription, new_subscription
from filtering.subscriptions.events import (
    UNVERSIONED,
    ConsumeFrom,
    InvalidSubscriptionEvent,
    Operation,
    SubscriptionEvent,
    SubscriptionEvents,
    consume_from_value,
    parse_consume_from,
)
from filtering.subscriptions.instants import checked, in_milliseconds
from filtering.subscriptions.json_fields import LONGEST_LINE, check_encoding, parse_json, text_field, whole_number

MISSPELT = 0.8
"""The similarity (difflib) of a name to a known one from which on it counts as misspelt."""
_SUBSCRIPTION_FIELDS = ("topic", "type", "expression", "sub_version", "class_filter_mode")
_FIELDS = (
    "at",
    "op",
    "group",
    *_SUBSCRIPTION_FIELDS,
    "client_id",
    "consume_from",
    "subscriptions",
    "queue_id",
    "offset",
    "to",
    "timestamp",
)


def parse_event_lines(text: str) -> SubscriptionEvents:
    """The events of all lines. Blank lines are skipped; a line that is not an event is among the rejected."""
    events, rejected = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            event = parse_event(line)
            in_milliseconds(event.at)
            _check_unregister(event)
            events.append(event)
        except ValueError as error:
            rejected.append(InvalidSubscriptionEvent(number, line[:LONGEST_LINE], str(error)))
    return SubscriptionEvents(tuple(events), tuple(rejected))


def parse_event(line: str, longest: int = LONGEST_LINE) -> SubscriptionEvent:
    """One event. Raises ValueError with the reason if the line is not an event, or has more characters."""
    row = parse_json(line, longest)
    check_encoding(line)
    if not isinstance(row, dict):
        raise ValueError("an event must be a JSON object")
    operations = [operation.value for operation in Operation]
    if row.get("op") not in operations:
        raise ValueError(f"op must be one of {', '.join(operations)}, not {row.get('op')!r}")
    operation = Operation(row["op"])
    _check_fields(row, _FIELDS)
    at = whole_number(row, "at")
    if at is None:
        raise ValueError("at is missing; write the time in milliseconds")
    checked(at)
    resets = operation is Operation.RESET_OFFSET
    has_topic = resets or (operation is Operation.UNREGISTER and "topic" in row)
    return SubscriptionEvent(
        at=at,
        operation=operation,
        group=text_field(row, "group"),
        subscriptions=_subscriptions(row, operation),
        topic=text_field(row, "topic") if has_topic else None,
        client_id=text_field(row, "client_id") if "client_id" in row else None,
        consume_from=parse_consume_from(row.get("consume_from", ConsumeFrom.LAST.value)),
        **(_reset(row) if resets else {}),
    )


def event_line(event: SubscriptionEvent) -> str:
    """The line that :func:`parse_event` reads as this event."""
    row: dict[str, Any] = {"at": event.at, "op": event.operation.value, "group": event.group}
    if event.topic is not None:
        row["topic"] = event.topic
    if event.client_id is not None:
        row["client_id"] = event.client_id
    if event.consume_from is not ConsumeFrom.LAST:
        row["consume_from"] = consume_from_value(event.consume_from)
    if event.operation is Operation.RESET_OFFSET:
        fields = {"queue_id": event.queue_id, "offset": event.queue_offset, "to": event.reset_to}
        row |= {name: value for name, value in fields.items() if value is not None}
    listed = [_subscription_fields(subscription) for subscription in event.subscriptions]
    if event.operation is Operation.HEARTBEAT:
        row["subscriptions"] = listed
    for fields in listed if event.operation is not Operation.HEARTBEAT else ():
        row |= fields
    return json.dumps(row, ensure_ascii=False)


def _subscription_fields(subscription: Subscription) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": subscription["topic"],
        "type": subscription["type"],
        "expression": subscription["expression"],
        "sub_version": subscription["version"],
    }
    if subscription.get("class_filter_mode"):
        fields["class_filter_mode"] = True
    return fields


def _subscriptions(row: Mapping[str, Any], operation: Operation) -> tuple[Subscription, ...]:
    if operation in (Operation.UNREGISTER, Operation.RESET_OFFSET):
        return ()
    if operation is Operation.HEARTBEAT:
        listed = row.get("subscriptions")
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise ValueError("subscriptions of a heartbeat must be a list of objects with topic and expression")
        for entry in listed:
            _check_fields(entry, _SUBSCRIPTION_FIELDS)
        return tuple(_subscription(entry) for entry in listed)
    subscription = _subscription(row)
    if operation is Operation.PULL_SUBSCRIPTION and "class_filter_mode" in subscription:
        raise ValueError("a client in class_filter_mode sends no subscription with its pulls; register it")
    return (subscription,)


def _check_unregister(event: SubscriptionEvent) -> None:
    """Raises ValueError if a client leaves one topic: to the broker, it leaves the group or sends a shorter list."""
    if event.operation is Operation.UNREGISTER and event.client_id is not None and event.topic is not None:
        raise ValueError(
            "an unregister has a client_id or a topic, not both; a client that leaves one topic sends a heartbeat "
            "without it"
        )


def _check_fields(row: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError if a field looks like a misspelt one. Other unknown fields are ignored."""
    for name in row:
        similar = () if name in known else difflib.get_close_matches(name, known, 1, MISSPELT)
        if similar:
            raise ValueError(f"{name} is not known; did you mean {similar[0]}?")


def _subscription(row: Mapping[str, Any]) -> Subscription:
    if "expression" not in row:
        raise ValueError('expression is missing; "*" takes every message')
    version = whole_number(row, "sub_version")
    class_filter_mode = row.get("class_filter_mode", False)
    if not isinstance(class_filter_mode, bool):
        raise ValueError(f"class_filter_mode must be true or false, not {class_filter_mode!r}")
    expression_type = _optional_text(row, "type")
    return new_subscription(
        text_field(row, "topic"),
        _optional_text(row, "expression"),
        TAG if expression_type is None else expression_type,
        UNVERSIONED if version is None else version,
        class_filter_mode,
    )


def _reset(row: Mapping[str, Any]) -> dict[str, int]:
    """The fields of a reset_offset. Raises ValueError if it has neither an offset nor a time, or both."""
    times = [name for name in ("to", "timestamp") if name in row]
    if len(times) + ("offset" in row) > 1:
        raise ValueError(f"a reset_offset has offset or {' or '.join(times)}, not both")
    if not times and "offset" not in row and "queue_id" not in row:
        raise ValueError("a reset_offset needs queue_id and offset, or to: a time in milliseconds")
    if not times:
        return {"queue_id": _offset(row, "queue_id"), "queue_offset": _offset(row, "offset")}
    queue = {"queue_id": _offset(row, "queue_id")} if "queue_id" in row else {}
    return queue | {"reset_to": checked(_offset(row, times[0]))}


def _offset(row: Mapping[str, Any], key: str) -> int:
    value = whole_number(row, key)
    if value is None or value < 0:
        raise ValueError(f"{key} of a reset_offset must be 0 or more, not {value!r}")
    return value


def _optional_text(row: Mapping[str, Any], key: str) -> str | None:
    return None if row.get(key) is None else text_field(row, key, may_be_empty=True)


def with_offsets(
    events: Iterable[SubscriptionEvent], offsets: Mapping[str, Mapping[int, int]]
) -> Iterator[SubscriptionEvent]:
    """The events, with a reset of each queue instead of a reset by time. ``offsets``: by its line, by queue id."""
    for event in events:
        if event.reset_to is None:
            yield event
        else:
            for queue_id, offset in offsets.get(event_line(event), {}).items():
                yield replace(event, queue_id=queue_id, queue_offset=offset, reset_to=None)
