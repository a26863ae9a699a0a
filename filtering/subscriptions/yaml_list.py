"""Subscriptions as a YAML list. Each entry has a group, a topic and an expression.

    - group: cg_paid
      topic: OrderEvents
      tag: paid || shipped
    - group: cg_expensive
      topic: OrderEvents
      sql: price > 50.0
      at: 2026-11-21T06:00:00Z

``at`` is when the subscription takes effect, in milliseconds or as an ISO time (UTC if it has no time zone). A list
without any ``at`` is a snapshot: it is valid from the end of the night before, or in a first night before all
messages. A group that is not in a later snapshot has left. ``consume_from`` is where the group begins in a queue if
it has no offset there: ``last`` (the default), ``first``, or at the first message stored since a time, written like
``at``. ``namespace: shop`` is the client's namespace: at the broker, the group and topic are ``shop%cg_paid`` and
``shop%OrderEvents``.
``message_model: broadcasting`` marks a group that broadcasts (default: clustering): it is named as not replayed.
``class_filter_mode: true`` marks a subscription by filter class, which takes every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import yaml

from filtering.java.strings import has_half_a_pair, without_half_pairs
from filtering.subscription_data import SQL92, TAG, new_subscription
from filtering.subscriptions.events import (
    UNVERSIONED,
    ConsumeFrom,
    GroupTopic,
    InvalidSubscriptionEvent,
    Operation,
    SubscriptionEvent,
    SubscriptionEvents,
    parse_consume_from,
)
from filtering.subscriptions.instants import instant
from filtering.subscriptions.json_fields import check_encoding
from filtering.subscriptions.namespace import wrap_namespace
from filtering.yaml_input import InvalidYaml, compose

_KEYS = ("group", "topic", "tag", "sql", "at", "consume_from", "namespace", "message_model", "class_filter_mode")

_Place: TypeAlias = tuple[int, str]
"""The first line of an entry, and its text."""


def parse_yaml(text: str) -> SubscriptionEvents:
    """The events of all entries. Invalid entries are rejected, and the whole text if it is not a YAML list."""
    read: list[tuple[_Place, SubscriptionEvent]] = []
    broadcasting: list[GroupTopic] = []
    rejected, is_timed = [], False
    try:
        loader, document = compose(without_half_pairs(text))
    except InvalidYaml as error:
        encoding = "not UTF-8 (convert it, as iconv does), and " if has_half_a_pair(text) else ""
        return _all_rejected(error.line, text, f"{encoding}{error}")
    if document is None:
        return SubscriptionEvents((), ())
    if not isinstance(document, yaml.SequenceNode):
        return _all_rejected(1, text, "not a list; start each subscription with a dash, as in - group: cg_paid")
    for node in document.value:
        place = node.start_mark.line + 1, text[node.start_mark.index : node.end_mark.index].rstrip()
        try:
            for scalar in _scalars(node):
                check_encoding(text[scalar.start_mark.index : scalar.end_mark.index])
            entry = loader.construct_object(node, deep=True)
            event = _event(entry)
            is_timed |= "at" in entry
            if entry.get("message_model") == "broadcasting":
                broadcasting.append((event.group, event.subscriptions[0]["topic"]))
            else:
                read.append((place, event))
        except (ValueError, yaml.YAMLError) as error:
            rejected.append(InvalidSubscriptionEvent(*place, str(error)))
    if not is_timed:
        read, replaced = _last_of_each(read)
        rejected = sorted([*rejected, *replaced], key=lambda entry: entry.line)
    events = tuple(event for _, event in read)
    is_snapshot = bool(events) and not is_timed
    return SubscriptionEvents(events, tuple(rejected), is_snapshot, tuple(dict.fromkeys(broadcasting)))


def _last_of_each(
    read: Sequence[tuple[_Place, SubscriptionEvent]],
) -> tuple[list[tuple[_Place, SubscriptionEvent]], list[InvalidSubscriptionEvent]]:
    """The last subscription of each group to each topic, as at the broker; others are rejected if they differ."""
    last = {(event.group, event.subscriptions[0]["topic"]): (place, event) for place, event in read}
    kept, rejected = [], []
    for place, event in read:
        (line, _), counts = entry = last[event.group, event.subscriptions[0]["topic"]]
        if event is counts:
            kept.append(entry)
        elif event != counts:
            reason = f"line {line} has the same group and topic, and counts; give at: if the subscription changed"
            rejected.append(InvalidSubscriptionEvent(*place, reason, is_replaced=True))
    return kept, rejected


def _all_rejected(line: int, text: str, reason: str) -> SubscriptionEvents:
    return SubscriptionEvents((), (InvalidSubscriptionEvent(line, text, reason),))


def _scalars(node: yaml.Node) -> Iterator[yaml.Node]:
    """The keys and values in a node: what is left of it without comments."""
    if isinstance(node, yaml.ScalarNode):
        yield node
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for each in child if isinstance(child, tuple) else (child,):
            yield from _scalars(each)


def _event(entry: object) -> SubscriptionEvent:
    fields = _fields(entry)
    namespace = fields.get("namespace", "")
    subscription = new_subscription(
        wrap_namespace(namespace, fields["topic"]),
        fields["tag"] if "tag" in fields else fields["sql"],
        TAG if "tag" in fields else SQL92,
        UNVERSIONED,
        fields.get("class_filter_mode") == "true",
    )
    return SubscriptionEvent(
        instant(fields.get("at", "0")),
        Operation.REGISTER,
        wrap_namespace(namespace, fields["group"]),
        (subscription,),
        consume_from=parse_consume_from(fields.get("consume_from", ConsumeFrom.LAST.value)),
    )


def _fields(entry: object) -> dict[str, str]:
    """The fields of an entry. Raises ValueError if one is missing, not known, or has a value that it cannot have."""
    if not isinstance(entry, dict):
        raise ValueError("a subscription needs group:, topic: and either tag: or sql:")
    for key, value in entry.items():
        if key not in _KEYS:
            raise ValueError(f"{key}: is not known; a subscription has {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise ValueError(f"{key}: must be a text")
    for key in ("group", "topic"):
        if not entry.get(key):
            raise ValueError(f"{key}: is missing")
    if ("tag" in entry) == ("sql" in entry):
        raise ValueError("a subscription needs either tag: or sql:, and not both")
    if entry.get("tag") == "":
        raise ValueError('tag: is empty; write "*" for every message')
    if entry.get("message_model", "clustering") not in ("clustering", "broadcasting"):
        raise ValueError(f"message_model: must be clustering or broadcasting, not {entry['message_model']!r}")
    if entry.get("class_filter_mode", "false") not in ("true", "false"):
        raise ValueError(f"class_filter_mode: must be true or false, not {entry['class_filter_mode']!r}")
    return entry
