"""What happened to subscriptions, in order: registrations, departures, subscriptions sent with pulls.

Three formats: JSON lines of events (:mod:`filtering.subscriptions.event_lines`), RocketMQ's own
consumerFilter.json, and a YAML list typed by hand (:mod:`filtering.subscriptions.yaml_list`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from filtering.consumer_filter_manager import Subscription


class Operation(Enum):
    REGISTER = "register"
    """The group subscribes to one topic; its other topics are untouched."""
    HEARTBEAT = "heartbeat"
    """A client of the group sends the whole list of what it subscribes to."""
    UNREGISTER = "unregister"
    """The group, one topic of it, or one client of it, leaves."""
    PULL_SUBSCRIPTION = "pull_subscription"
    """From now on the group, registered or not, sends this subscription with every pull of the topic."""
    RESET_OFFSET = "reset_offset"
    """An operator sets the group's offset in one queue: it consumes again from there, or skips what lies between."""


class ConsumeFrom(Enum):
    """Where a group begins in a queue in which it has no offset yet (ConsumeFromWhere)."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """``at`` is in milliseconds: messages stored then or later are filtered so.

    ``subscriptions`` is one for a register or a pull_subscription, the whole list for a heartbeat, and empty for
    the others. ``topic`` None means all topics of the group in an unregister. ``client_id`` is known where clients
    are distinguished. ``consume_from`` is what the clients ask for at their first start. ``queue_id`` and
    ``queue_offset`` belong to a reset_offset.
    """

    at: int
    operation: Operation
    group: str
    subscriptions: tuple[Subscription, ...] = ()
    topic: str | None = None
    client_id: str | None = None
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    queue_id: int | None = None
    queue_offset: int | None = None


class InvalidSubscriptionEvent(ValueError):
    """An entry that is no event: its first line (from 1), its text, and why, as the message."""

    def __init__(self, line: int, text: str, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SubscriptionEvents:
    """``events`` by time, those of the same time as in the file; ``rejected`` is what was no event.

    A snapshot has the subscriptions at one time, not what happened before: see
    :mod:`filtering.subscriptions.snapshots`.
    """

    events: tuple[SubscriptionEvent, ...]
    rejected: tuple[InvalidSubscriptionEvent, ...]
    is_snapshot: bool = False


UNVERSIONED = -1
"""The version of a subscription whose source gave none, until :func:`in_order` gives it one."""


def in_order(events: Iterable[SubscriptionEvent]) -> tuple[SubscriptionEvent, ...]:
    """Events by time, stable, every unversioned subscription newer than those before it.

    A client's version is the time at which it last changed; so is the one given here, at least one
    more than the last of the same group and topic.
    """
    latest: dict[tuple[str, str], int] = {}
    ordered = []
    for event in sorted(events, key=lambda event: event.at):
        subscriptions = []
        for each in event.subscriptions:
            key = event.group, each["topic"]
            if each["version"] == UNVERSIONED:
                each = each | {"version": max(event.at, latest.get(key, -1) + 1)}
            latest[key] = max(each["version"], latest.get(key, -1))
            subscriptions.append(each)
        ordered.append(replace(event, subscriptions=tuple(subscriptions)))
    return tuple(ordered)
