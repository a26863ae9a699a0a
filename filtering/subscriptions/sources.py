"""Subscription events from whatever file a user has: event lines, RocketMQ's consumerFilter.json, or YAML."""

from __future__ import annotations

import json
import re
from typing import Any

from filtering.consumer_filter_manager import Subscription
from filtering.subscriptions.event_lines import parse_event_lines
from filtering.subscriptions.events import (
    InvalidSubscriptionEvent,
    Operation,
    SubscriptionEvent,
    SubscriptionEvents,
    in_order,
)
from filtering.subscriptions.yaml_list import parse_yaml


def parse_subscriptions(text: str) -> SubscriptionEvents:
    """The events of a subscriptions file, its format told by how it begins.

    Never raises: what cannot be read is among ``.rejected``, and the rest among ``.events``.
    """
    text = text.removeprefix("\ufeff")
    if re.match(r'\s*\{\s*"filterDataByTopic"', text):
        return parse_consumer_filter(text)
    if text.lstrip().startswith("{"):
        return parse_event_lines(text)
    return parse_yaml(text)


def parse_consumer_filter(text: str) -> SubscriptionEvents:
    """What a consumerFilter.json tells: each filter registered at its birth, and dead since its death."""
    try:
        topics = json.loads(text)["filterDataByTopic"]
        entries = [(group, entry) for topic in topics.values() for group, entry in topic["groupFilterData"].items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"not a consumerFilter.json of RocketMQ: {error!r}"
        return SubscriptionEvents((), (InvalidSubscriptionEvent(1, text, reason),))
    events: list[SubscriptionEvent] = []
    rejected = []
    for group, entry in entries:
        try:
            events.extend(_filter_events(entry))
        except (KeyError, TypeError, ValueError) as error:
            line = text[: text.find(json.dumps(group, ensure_ascii=False))].count("\n") + 1
            reason = f"the filter of {group} lacks a field or has a bad one: {error}"
            rejected.append(InvalidSubscriptionEvent(line, json.dumps(entry, ensure_ascii=False), reason))
    return SubscriptionEvents(in_order(events), tuple(rejected))


def _filter_events(entry: dict[str, Any]) -> list[SubscriptionEvent]:
    group, topic = entry["consumerGroup"], entry["topic"]
    born_time, dead_time = int(entry["bornTime"]), int(entry["deadTime"])
    subscription = Subscription(
        topic=topic,
        expression=entry["expression"],
        type=entry["expressionType"],
        version=int(entry["clientVersion"]),
    )
    events = [SubscriptionEvent(born_time, Operation.REGISTER, group, (subscription,))]
    if dead_time >= born_time:
        events.append(SubscriptionEvent(dead_time, Operation.UNREGISTER, group, topic=topic))
    return events
