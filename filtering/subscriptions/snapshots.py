"""What a file of subscriptions adds to the events known before: a snapshot its differences, a history its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from filtering.java.numbers import LONG_MAX
from filtering.subscription_data import filter_of, is_tag_type
from filtering.subscriptions.events import GroupTopic, Operation, SubscriptionEvent, SubscriptionEvents, in_order
from filtering.subscriptions.subscription_row import SubscriptionRow


def differences(
    snapshot: SubscriptionEvents, in_force: Iterable[SubscriptionRow], since: int, filters_only: bool
) -> tuple[SubscriptionEvent, ...]:
    """The events after ``since`` (ms) that lead from the subscriptions in force then to those of a snapshot.

    ``filters_only``: the snapshot is a consumerFilter.json, which has no TAG subscriptions. A group that is not in the
    snapshot has left the topic, unless a part of the snapshot could not be read. Events of the snapshot after
    ``since`` keep their time.
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
    for key, row in known.items():
        is_listed_type = not filters_only or not is_tag_type(row.expression_type)
        if key not in registered and row.is_consuming and is_listed_type and is_complete:
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
