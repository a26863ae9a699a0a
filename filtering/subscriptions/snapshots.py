"""Snapshots of subscriptions: what they say differently from what was known are events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import Operation, SubscriptionEvent, SubscriptionEvents, in_order
from filtering.subscriptions.history import Key, SubscriptionRow


def differences(
    snapshot: SubscriptionEvents, in_force: Iterable[SubscriptionRow], since: int, filters_only: bool
) -> tuple[SubscriptionEvent, ...]:
    """The events after ``since`` (ms) that lead from the subscriptions in force then to those of a snapshot.

    ``filters_only``: the snapshot is a consumerFilter.json, which has no TAG subscriptions. A group and topic that
    the snapshot leaves out has left, unless some of the snapshot could not be read. Events of the snapshot that are
    later than ``since`` keep their time.
    """
    known = {(row.consumer_group, row.topic): row for row in in_force}
    registered: dict[Key, SubscriptionEvent] = {}
    left: dict[Key, SubscriptionEvent] = {}
    for event in snapshot.events:
        event = replace(event, at=max(event.at, since + 1))
        if event.operation is Operation.UNREGISTER:
            left[event.group, event.topic or ""] = event
        else:
            (subscription,) = event.subscriptions
            subscription = subscription | {"version": max(event.at, subscription["version"])}
            key = event.group, subscription["topic"]
            registered[key] = replace(event, subscriptions=(subscription,))
    events = []
    for key, event in registered.items():
        row = known.get(key)
        says_the_same = row is not None and _says_the_same(event, row)
        is_there = row is not None and row.is_consuming
        if not says_the_same or (not is_there and key not in left):
            events.append(event)
            is_there = True
        if is_there and key in left:
            events.append(left[key])
    for key, row in known.items():
        silent = filters_only and is_tag_type(row.expression_type)
        if key not in registered and row.is_consuming and not silent and not snapshot.rejected:
            events.append(SubscriptionEvent(since + 1, Operation.UNREGISTER, row.consumer_group, topic=row.topic))
    return in_order(events)


def _says_the_same(event: SubscriptionEvent, row: SubscriptionRow) -> bool:
    (subscription,) = event.subscriptions
    said = subscription["expression"] or "", subscription["type"], subscription.get("class_filter_mode", False)
    return said == (row.expression or "", row.expression_type, row.class_filter_mode)
