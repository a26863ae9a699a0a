"""Reads subscription events from a file: event lines, RocketMQ's consumerFilter.json, or YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from filtering.consumer_filter_manager import Subscription
from filtering.subscriptions.event_lines import parse_event_lines
from filtering.subscriptions.events import (
    InvalidSubscriptionEvent,
    Operation,
    SubscriptionEvent,
    SubscriptionEvents,
)
from filtering.subscriptions.instants import checked
from filtering.subscriptions.json_fields import parse_json, text_field, whole_number
from filtering.subscriptions.yaml_list import parse_yaml

LARGEST_FILE = 256 << 20
"""The greatest length of a consumerFilter.json in characters."""
_CONSUMER_FILTER = re.compile(r'\s*\{\s*"filterDataByTopic"')


def parse_subscriptions(text: str) -> SubscriptionEvents:
    """The events of a subscriptions file. The beginning of the text decides its format.

    It never raises: entries that cannot be read are in ``.rejected``, the others in ``.entries``.
    """
    text = text.removeprefix("\ufeff")
    if is_consumer_filter(text):
        return parse_consumer_filter(text)
    if text.lstrip().startswith("{"):
        return parse_event_lines(text)
    return parse_yaml(text)


def is_consumer_filter(text: str) -> bool:
    """Whether a text begins like RocketMQ's consumerFilter.json, which has only SQL92 subscriptions."""
    return _CONSUMER_FILTER.match(text) is not None


def parse_consumer_filter(text: str) -> SubscriptionEvents:
    """The events of a consumerFilter.json: each filter registers at its born time and leaves at its dead time."""
    try:
        entries = list(_entries(parse_json(text, LARGEST_FILE)))
    except ValueError as error:
        reason = f"not a consumerFilter.json of RocketMQ: {error}"
        return SubscriptionEvents((), (InvalidSubscriptionEvent(1, text[:1000], reason),))
    events: list[SubscriptionEvent] = []
    rejected = []
    lines: dict[str, int] = {}
    for group, entry in entries:
        try:
            events.extend(_filter_events(entry))
        except ValueError as error:
            lines = lines or _lines_of_names(text)
            reason = f"the filter of {group} lacks a field or has a bad one: {error}"
            rejected.append(InvalidSubscriptionEvent(lines.get(group, 1), json.dumps(entry)[:10_000], reason))
    return SubscriptionEvents(tuple(events), tuple(rejected), is_snapshot=bool(events))


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    for topic in _mapping(document, "filterDataByTopic").values():
        yield from _mapping(topic, "groupFilterData").items()


def _mapping(row: Any, key: str) -> dict[str, Any]:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be an object")
    return value


def _filter_events(entry: Any) -> list[SubscriptionEvent]:
    if not isinstance(entry, dict):
        raise ValueError("it must be an object")
    group, topic = text_field(entry, "consumerGroup"), text_field(entry, "topic")
    times = {key: whole_number(entry, key) for key in ("bornTime", "deadTime", "clientVersion")}
    for key, value in times.items():
        if value is None:
            raise ValueError(f"{key} is missing")
    born_time, dead_time, version = (value or 0 for value in times.values())
    checked(born_time)
    checked(dead_time)
    subscription = Subscription(
        topic=topic,
        expression=text_field(entry, "expression"),
        type=text_field(entry, "expressionType"),
        version=version,
    )
    events = [SubscriptionEvent(born_time, Operation.REGISTER, group, (subscription,))]
    if dead_time >= born_time:
        events.append(SubscriptionEvent(dead_time, Operation.UNREGISTER, group, topic=topic))
    return events


def _lines_of_names(text: str) -> dict[str, int]:
    """The first line of each JSON key."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        match = re.match(r'\s*("(?:[^"\\]|\\.)*")\s*:', line)
        if match:
            lines.setdefault(json.loads(match[1]), number)
    return lines
