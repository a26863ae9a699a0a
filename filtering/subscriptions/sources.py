"""Reads subscription events from a file: event lines, RocketMQ's consumerFilter.json, or YAML."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from filtering.java.strings import has_half_a_pair
from filtering.subscription_data import Subscription
from filtering.subscriptions.event_lines import parse_event_lines
from filtering.subscriptions.events import InvalidSubscriptionEvent, Operation, SubscriptionEvent, SubscriptionEvents
from filtering.subscriptions.instants import checked
from filtering.subscriptions.json_fields import check_encoding, parse_json, text_field, whole_number
from filtering.subscriptions.yaml_list import parse_yaml

LARGEST_FILE = 256 << 20
"""The greatest length of a consumerFilter.json in characters."""
_CONSUMER_FILTER = re.compile(r'\ufeff?\s*\{\s*"filterDataByTopic"')


def parse_subscriptions(text: str) -> SubscriptionEvents:
    """The events of a subscriptions file. The beginning of the text decides its format.

    Bytes that are not UTF-8 are halves of surrogate pairs in the text, as ``surrogateescape`` decodes them.
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
        return SubscriptionEvents((), (InvalidSubscriptionEvent(1, text, reason),))
    events: list[SubscriptionEvent] = []
    rejected = []
    places = _places(text) if has_half_a_pair(text) else {}
    line_ends: list[int] = []
    for topic, group, entry in entries:
        try:
            check_encoding(text[places[topic, group]] if places else "")
            events.extend(_filter_events(entry))
        except ValueError as error:
            places = places or _places(text)
            place = places[topic, group]
            reason = f"the filter of {group} lacks a field or has a bad one: {error}"
            line_ends = line_ends or [match.start() for match in re.finditer("\n", text)]
            line = bisect_left(line_ends, place.start) + 1
            rejected.append(InvalidSubscriptionEvent(line, text[place], reason))
    return SubscriptionEvents(tuple(events), tuple(rejected), is_snapshot=bool(events))


def _entries(document: Any) -> Iterator[tuple[str, str, Any]]:
    for topic, groups in _mapping(document, "filterDataByTopic").items():
        for group, entry in _mapping(groups, "groupFilterData").items():
            yield topic, group, entry


def _places(text: str) -> dict[tuple[str, str], slice]:
    """Where each entry is in the text of a consumerFilter.json, by topic and group."""
    topics = dict(_members(text, 0))["filterDataByTopic"]
    return {
        (topic, group): place
        for topic, groups in _members(text, topics.start)
        for group, place in _members(text, dict(_members(text, groups.start))["groupFilterData"].start)
    }


def _members(text: str, start: int) -> Iterator[tuple[str, slice]]:
    """The keys of the JSON object that begins at ``start``, in valid JSON, and where their values are."""
    decode = json.JSONDecoder().raw_decode
    at = _next(text, text.index("{", start) + 1)
    while text[at] != "}":
        key, at = decode(text, at)
        begin = _next(text, at)
        _, end = decode(text, begin)
        yield key, slice(begin, end)
        at = _next(text, end)


def _next(text: str, at: int) -> int:
    """Where the next key or value begins, or the object ends."""
    while text[at] in " \t\n\r:,":
        at += 1
    return at


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
