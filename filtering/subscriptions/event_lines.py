"""Subscription events as JSON lines: one event a line, in any order.

    {"at": 1795237513466, "op": "register", "group": "cg_paid", "topic": "OrderEvents",
     "type": "SQL92", "expression": "price > 5", "sub_version": 1795237493517}
    {"at": 1795237514608, "op": "pull_subscription", …as register…}
    {"at": 1795237522243, "op": "unregister", "group": "cg_paid", "topic": "OrderEvents"}
    {"at": 1795237530000, "op": "heartbeat", "group": "cg_paid", "client_id": "10.0.0.7@4711",
     "subscriptions": [{"topic": "OrderEvents", "type": "TAG", "expression": "paid", "sub_version": 7}]}

``topic`` of an unregister may be absent (all topics), and ``client_id`` may tell which client
registers or unregisters. A missing ``type`` is TAG, a missing ``sub_version`` the time of the event.
A client stays until it unregisters. A broker also forgets one whose connection closed, or that was
silent for channelExpiredTimeout, 120 s (ConsumerManager): where that happened, add an unregister.
``"class_filter_mode": true`` marks a subscription by filter class, which takes every message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from filtering.consumer_filter_manager import Subscription
from filtering.subscription_data import TAG
from filtering.subscriptions.events import (
    UNVERSIONED,
    InvalidSubscriptionEvent,
    Operation,
    SubscriptionEvent,
    SubscriptionEvents,
    in_order,
)


def parse_event_lines(text: str) -> SubscriptionEvents:
    """Every line that is an event; blank lines are skipped, any other line is among the rejected."""
    events, rejected = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            events.append(_event(json.loads(line)))
        except json.JSONDecodeError as error:
            rejected.append(InvalidSubscriptionEvent(number, line, f"not JSON: {error}"))
        except ValueError as error:
            rejected.append(InvalidSubscriptionEvent(number, line, str(error)))
    return SubscriptionEvents(in_order(events), tuple(rejected))


def _event(row: Any) -> SubscriptionEvent:
    if not isinstance(row, dict):
        raise ValueError("an event must be a JSON object")
    operations = [operation.value for operation in Operation]
    if row.get("op") not in operations:
        raise ValueError(f"op must be one of {', '.join(operations)}, not {row.get('op')!r}")
    operation = Operation(row["op"])
    at = _whole_number(row, "at")
    if at is None:
        raise ValueError("at is missing; write the time in milliseconds")
    if operation is Operation.HEARTBEAT:
        listed = row.get("subscriptions")
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError("subscriptions of a heartbeat must be a list of objects with topic and expression")
        subscriptions = tuple(_subscription(each) for each in listed)
    elif operation is Operation.UNREGISTER:
        subscriptions = ()
    else:
        subscriptions = (_subscription(row),)
        if operation is Operation.PULL_SUBSCRIPTION and "class_filter_mode" in subscriptions[0]:
            raise ValueError("a client in class_filter_mode sends no subscription with its pulls; register it")
    return SubscriptionEvent(
        at=at,
        operation=operation,
        group=_text(row, "group"),
        subscriptions=subscriptions,
        topic=_text(row, "topic") if operation is Operation.UNREGISTER and "topic" in row else None,
        client_id=_text(row, "client_id") if "client_id" in row else None,
    )


def _subscription(row: Mapping[str, Any]) -> Subscription:
    expression, expression_type = row.get("expression"), row.get("type")
    if not isinstance(expression, str | None):
        raise ValueError(f"expression must be a text, not {expression!r}")
    if not isinstance(expression_type, str | None):
        raise ValueError(f"type must be a text such as TAG or SQL92, not {expression_type!r}")
    version = _whole_number(row, "sub_version")
    class_filter_mode = row.get("class_filter_mode", False)
    if not isinstance(class_filter_mode, bool):
        raise ValueError(f"class_filter_mode must be true or false, not {class_filter_mode!r}")
    subscription = Subscription(
        topic=_text(row, "topic"),
        expression=expression,
        type=TAG if expression_type is None else expression_type,
        version=UNVERSIONED if version is None else version,
    )
    if class_filter_mode:
        subscription["class_filter_mode"] = True
    return subscription


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a text, not {value!r}")
    return value


def _whole_number(row: Mapping[str, Any], key: str) -> int | None:
    value = row.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{key} must be a whole number, not {value!r}")
    return value
