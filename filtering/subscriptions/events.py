"""Subscription events: clients register, leave, or send a subscription with their pulls.

They are read from three formats: JSON lines of events (:mod:`filtering.subscriptions.event_lines`), RocketMQ's own
consumerFilter.json, and YAML lists (:mod:`filtering.subscriptions.yaml_list`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TypeAlias

from filtering.java.numbers import LONG_MAX
from filtering.subscription_data import Subscription
from filtering.subscriptions.instants import instant

GroupTopic = tuple[str, str]
"""A consumer group and a topic."""


BROADCASTING = "broadcasting, where each client gets every message and keeps its own offsets"
"""What groups do whose message model is BROADCASTING. It is not replayed."""


class Operation(Enum):
    """What happens to a group, with the name that an event line has for it."""

    REGISTER = "register"
    """The group subscribes to one topic; its other topics do not change."""
    HEARTBEAT = "heartbeat"
    """A client of the group sends the whole list of its subscriptions."""
    UNREGISTER = "unregister"
    """The group leaves all topics or one, or a client leaves the group."""
    PULL_SUBSCRIPTION = "pull_subscription"
    """Until it leaves, the group sends this subscription with its pulls of the topic, even if it is not registered."""
    RESET_OFFSET = "reset_offset"
    """An operator sets the group's offset in one queue, or to a time: it consumes messages again, or skips some."""


class ConsumeFrom(Enum):
    """Where a group begins in a queue if it has no offset there (ConsumeFromWhere)."""

    FIRST = "first"
    LAST = "last"


ConsumeStart: TypeAlias = ConsumeFrom | int
"""Where a group begins; an int is the store time (ms) of its first messages (CONSUME_FROM_TIMESTAMP)."""


def parse_consume_from(value: object) -> ConsumeStart:
    """``first``, ``last``, or a time: ms since 1970, or an ISO time (UTC by default). Raises ValueError otherwise.

    RocketMQ's consumeTimestamp (20261126013000) is a time of the client's time zone, which no event has.
    """
    text = str(value)
    if text in ("first", "last"):
        return ConsumeFrom(text)
    try:
        return instant(text)
    except ValueError as error:
        raise ValueError(f"consume_from must be first, last or a time: {error}") from None


def consume_from_value(start: ConsumeStart) -> str | int:
    """What :func:`parse_consume_from` reads as this start."""
    return start.value if isinstance(start, ConsumeFrom) else start


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """A change of a group's subscriptions. It applies to messages stored at ``at`` (ms) or later.

    ``subscriptions`` has one entry for a register or a pull_subscription and the whole list for a heartbeat; otherwise
    it is empty. In an unregister, ``topic`` None means all topics of the group. ``client_id`` is None if the source
    does not have client ids. ``consume_from`` is what the clients ask for at their first start. ``queue_id`` and
    ``queue_offset`` belong to a reset_offset; one by time has ``reset_to`` (ms) instead of the offset, and without a
    queue is of all queues of the topic.
    """

    at: int
    operation: Operation
    group: str
    subscriptions: tuple[Subscription, ...] = ()
    topic: str | None = None
    client_id: str | None = None
    consume_from: ConsumeStart = ConsumeFrom.LAST
    queue_id: int | None = None
    queue_offset: int | None = None
    reset_to: int | None = None


class InvalidSubscriptionEvent(ValueError):
    """An entry that is not a valid event, with its first line (from 1), its text and the reason.

    ``is_replaced``: it is one, but a later entry for the same subscription counts instead.
    """

    def __init__(self, line: int, text: str, reason: str, is_replaced: bool = False) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.text = text
        self.reason = reason
        self.is_replaced = is_replaced


@dataclass(frozen=True)
class SubscriptionEvents:
    """The ``entries`` of a source in its own order, with versions only where it has them, and the ``rejected`` ones.

    A snapshot has the subscriptions at one time, without the changes before: see
    :mod:`filtering.subscriptions.snapshots`. ``broadcasting``: groups that broadcast, which have no entries, with their
    topics.
    """

    entries: tuple[SubscriptionEvent, ...]
    rejected: tuple[InvalidSubscriptionEvent, ...]
    is_snapshot: bool = False
    broadcasting: tuple[GroupTopic, ...] = ()

    @cached_property
    def events(self) -> tuple[SubscriptionEvent, ...]:
        """The events by time (in the order of the file if the time is the same), with versions."""
        return in_order(self.entries)


UNVERSIONED = -1
"""The version of a subscription from a source without versions. :func:`in_order` replaces it."""


def in_order(
    events: Iterable[SubscriptionEvent], after: Iterable[SubscriptionEvent] = ()
) -> tuple[SubscriptionEvent, ...]:
    """Sorts events by time, and gives unversioned subscriptions a version. The sort is stable.

    A client's version is the time of its last change. The version given here is the time of the event, but at least
    one more than the last version of the same group and topic, in these events or in those ``after`` which they come.
    """
    latest: dict[GroupTopic, int] = {}
    for event in after:
        for subscription in event.subscriptions:
            key = event.group, subscription["topic"]
            latest[key] = max(subscription["version"], latest.get(key, -1))
    ordered = []
    for event in sorted(events, key=lambda event: event.at):
        subscriptions = []
        for subscription in event.subscriptions:
            key = event.group, subscription["topic"]
            if subscription["version"] == UNVERSIONED:
                subscription = subscription | {"version": min(max(event.at, latest.get(key, -1) + 1), LONG_MAX)}
            latest[key] = max(subscription["version"], latest.get(key, -1))
            subscriptions.append(subscription)
        ordered.append(replace(event, subscriptions=tuple(subscriptions)))
    return tuple(ordered)
