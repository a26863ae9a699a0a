"""Reads subscription events from a file: event lines, RocketMQ's consumerFilter.json, or YAML."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import yaml

from filtering.counted import did_you_mean
from filtering.java import LONG_MAX, has_half_a_pair, without_half_pairs
from filtering.names import RETRY_TOPIC_PREFIX, is_retry_topic, wrap_namespace
from filtering.subscription_data import SQL92, SUB_ALL, TAG, Subscription, filter_of, is_tag_type, new_subscription
from filtering.subscriptions.events import (
    UNVERSIONED,
    ConsumeFrom,
    GroupTopic,
    InvalidSubscriptionEvent,
    Operation,
    SubscriptionEvent,
    SubscriptionEvents,
    check_encoding,
    checked,
    in_order,
    instant,
    parse_consume_from,
    parse_event_lines,
    parse_json,
    text_field,
    whole_number,
)
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.yaml_input import InvalidYaml, compose

# Subscriptions as a YAML list. Each entry has a group, a topic and an expression.
#
#     - group: cg_paid
#       topic: OrderEvents
#       tag: paid || shipped
#     - group: cg_expensive
#       topic: OrderEvents
#       sql: price > 50.0
#       at: 2026-11-21T06:00:00Z
#
# ``at`` is when the subscription takes effect, in milliseconds or as an ISO time (UTC if it has no time zone). A list
# without any ``at`` is a snapshot: it is valid from the end of the night before, or in a first night before all
# messages. A group that is not in a later snapshot has left. ``consume_from`` is where the group begins in a queue if
# it has no offset there: ``last`` (the default), ``first``, or at the first message stored since a time, written like
# ``at``. ``namespace: shop`` is the client's namespace: at the broker, the group and topic are ``shop%cg_paid`` and
# ``shop%OrderEvents``. ``message_model: broadcasting`` marks a group that broadcasts (default: clustering): it is
# named as not replayed. ``class_filter_mode: true`` marks a subscription by filter class, which takes every message.


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
        for value in child if isinstance(child, tuple) else (child,):
            yield from _scalars(value)


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
            raise ValueError(f"{key}: is not known; a subscription has {', '.join(_KEYS)}{did_you_mean(key, _KEYS)}")
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


# What a file of subscriptions adds to the events known before: a snapshot its differences, a history its events.


def with_retry_topics(
    snapshot: SubscriptionEvents, in_force: Iterable[SubscriptionRow], has_committed: Callable[[GroupTopic], bool]
) -> SubscriptionEvents:
    """The snapshot, and what people leave out of a list: the retry topics of its groups.

    Clients that pull by themselves subscribe to none, and those that push to that of their group, with the tag ``*``
    (DefaultMQPushConsumerImpl.copySubscription). They commit an offset of it, which ``has_committed`` says of a group
    and topic. It is subscribed to from the first event of the group on, until the group has left all topics. A retry
    topic that is subscribed to already keeps its filter; ``in_force``: the subscriptions before the snapshot.
    """
    filters = {row.key: row.filter for row in in_force if row.is_consuming}
    by_group: defaultdict[str, list[SubscriptionEvent]] = defaultdict(list)
    for event in snapshot.events:
        by_group[event.group].append(event)
    added: list[SubscriptionEvent] = []
    for group, events in by_group.items():
        topic = f"{RETRY_TOPIC_PREFIX}{group}"
        listed = [subscription["topic"] for event in events for subscription in event.subscriptions]
        if topic in listed or not has_committed((group, topic)):
            continue
        expression, type_, is_class = filters.get((group, topic), (SUB_ALL, TAG, False))
        subscription = new_subscription(topic, expression, type_, UNVERSIONED, is_class)
        added.append(SubscriptionEvent(events[0].at, Operation.REGISTER, group, (subscription,)))
        if {event.topic for event in events if event.operation is Operation.UNREGISTER} >= {*listed}:
            added.append(SubscriptionEvent(events[-1].at, Operation.UNREGISTER, group, topic=topic))
    return replace(snapshot, entries=(*snapshot.entries, *added))


def differences(
    snapshot: SubscriptionEvents, in_force: Iterable[SubscriptionRow], since: int, filters_only: bool
) -> tuple[SubscriptionEvent, ...]:
    """The events after ``since`` (ms) that lead from the subscriptions in force then to those of a snapshot.

    ``filters_only``: the snapshot is a consumerFilter.json, which has no TAG subscriptions: these stay. A group that is
    not in the snapshot has left the topic, unless a part of the snapshot could not be read. A retry topic need not be
    in it: the clients of a group that stays subscribe to it by themselves. Events of the snapshot after ``since`` keep
    their time.
    """
    known = {row.key: row for row in in_force}
    registered: dict[GroupTopic, SubscriptionEvent] = {}
    left: dict[GroupTopic, SubscriptionEvent] = {}
    for event in snapshot.events:
        event = replace(event, at=max(event.at, since + 1))
        if event.operation is Operation.UNREGISTER:
            left[event.group, event.topic or ""] = event
        else:
            (subscription,) = event.subscriptions
            key = event.group, subscription["topic"]
            # A client's clock may be ahead of the broker's, and then the version of its subscription, too.
            version = max(event.at, subscription["version"], _last_version(known.get(key)) + 1)
            subscription = subscription | {"version": min(version, LONG_MAX)}
            registered[key] = replace(event, subscriptions=(subscription,))
    is_complete = all(entry.is_replaced for entry in snapshot.rejected)
    events = []
    for key, event in registered.items():
        row = known.get(key)
        is_unchanged = row is not None and _has_subscription(row, event)
        is_consuming = row is not None and row.is_consuming
        if not is_unchanged or (not is_consuming and key not in left):
            events.append(event)
            is_consuming = True
        if is_consuming and key in left:
            events.append(left[key])
    staying = {group for group, _ in registered.keys() - left.keys()}
    consuming = [row for row in known.values() if row.is_consuming]
    if filters_only:
        unlisted = [row for row in consuming if is_tag_type(row.expression_type) and not is_retry_topic(row.topic)]
        staying |= {row.consumer_group for row in unlisted}
    for row in consuming:
        is_of_group = is_retry_topic(row.topic) or (filters_only and is_tag_type(row.expression_type))
        stays = row.key in registered or (is_of_group and row.consumer_group in staying)
        if not stays and is_complete:
            events.append(SubscriptionEvent(since + 1, Operation.UNREGISTER, row.consumer_group, topic=row.topic))
    return in_order(events)


def later_events(
    applied: Sequence[SubscriptionEvent], given: SubscriptionEvents
) -> tuple[SubscriptionEvent, ...] | None:
    """The events of a file that has only events later than all ``applied`` ones; None if it has the whole history."""
    if not applied or any(event.at <= applied[-1].at for event in given.events):
        return None
    return in_order(given.entries, after=applied)


def events_with_file(
    applied: Sequence[SubscriptionEvent],
    given: SubscriptionEvents,
    in_force: Iterable[SubscriptionRow],
    since: int,
    filters_only: bool,
) -> tuple[SubscriptionEvent, ...]:
    """All events after a night that reads a file for the first time.

    ``in_force``: the subscriptions after the ``applied`` events, at ``since``.
    """
    if given.is_snapshot:
        return in_order((*applied, *differences(given, in_force, since, filters_only)))
    later = later_events(applied, given)
    return given.events if later is None else (*applied, *later)


def _last_version(row: SubscriptionRow | None) -> int:
    return -1 if row is None else max(row.sub_version, row.filter_version or -1)


def _has_subscription(row: SubscriptionRow, event: SubscriptionEvent) -> bool:
    (subscription,) = event.subscriptions
    return filter_of(subscription) == row.filter
