"""Clients of one group that do not subscribe to the same: whose subscription was in force, and when.

Source: ConsumerManager.registerConsumer, ConsumerGroupInfo.updateSubscription. The broker holds one
subscription for a group and topic, the one of the highest version, and every heartbeat's list
replaces the group's topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from filtering.consumer_filter_manager import Subscription, expression_type
from filtering.consumer_group_info import ConsumerGroupInfo
from filtering.subscriptions.events import Operation, SubscriptionEvent

_Says = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """What a client subscribes to, by its own last heartbeat."""

    client_id: str
    expression: str
    expression_type: str
    class_filter_mode: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionInForce:
    """What the broker answered a group's pulls of a topic with, in [valid_from, valid_to).

    Times are milliseconds; ``valid_to`` None means still. ``expression`` and ``expression_type`` are
    None where the group had no subscription to the topic, because a client's heartbeat did not list
    it: pulls are refused until another's does. ``overruled`` clients get the messages of the
    subscription in force instead of their own: what theirs matches and that one does not is lost to
    the group. ``absent`` clients do not subscribe to the topic, yet get their share of its queues,
    which no client reads.
    """

    consumer_group: str
    topic: str
    valid_from: int
    valid_to: int | None
    expression: str | None
    expression_type: str | None
    agreeing: tuple[str, ...]
    overruled: tuple[ClientSubscription, ...]
    absent: tuple[str, ...]

    @property
    def is_consistent(self) -> bool:
        return not self.overruled and not self.absent


def subscriptions_in_force(events: Iterable[SubscriptionEvent]) -> list[SubscriptionInForce]:
    """Every state of a group and topic with clients, ordered by group, topic and time.

    ``events`` are in order of time; those without a client id change what is in force, and no
    client's own subscription. A client stays until an event says that it left.
    """
    groups: dict[str, _Group] = defaultdict(_Group)
    rows: dict[tuple[str, str], list[SubscriptionInForce]] = defaultdict(list)
    for event in events:
        group = groups[event.group]
        group.apply(event)
        for topic in group.topics:
            _record(rows[event.group, topic], group.row(event.group, topic, event.at))
    return [row for key in sorted(rows) for row in rows[key] if row.agreeing or row.overruled]


def _record(rows: list[SubscriptionInForce], row: SubscriptionInForce) -> None:
    if rows and rows[-1].valid_from == row.valid_from:
        rows.pop()
    if rows and replace(rows[-1], valid_from=row.valid_from, valid_to=None) == row:
        rows[-1] = replace(rows[-1], valid_to=None)
        return
    if rows:
        rows[-1] = replace(rows[-1], valid_to=row.valid_from)
    rows.append(row)


class _Group:
    def __init__(self) -> None:
        self.topics: set[str] = set()
        self._info = ConsumerGroupInfo()
        self._clients: dict[str, dict[str, _Says]] = {}

    def apply(self, event: SubscriptionEvent) -> None:
        self.topics.update(each["topic"] for each in event.subscriptions)
        if event.operation is Operation.UNREGISTER:
            self._unregister(event)
        elif event.operation is Operation.HEARTBEAT:
            self._info.update_subscription(event.subscriptions)
            if event.client_id is not None:
                self._clients[event.client_id] = {}
        elif event.operation is Operation.REGISTER:
            for each in event.subscriptions:
                self._info.update_topic(each)
        if event.client_id is not None and event.operation is not Operation.UNREGISTER:
            said = self._clients.setdefault(event.client_id, {})
            said.update((each["topic"], _says(each)) for each in event.subscriptions)

    def _unregister(self, event: SubscriptionEvent) -> None:
        if event.client_id is not None:
            self._clients.pop(event.client_id, None)
            if self._clients:
                return
        elif event.topic is not None:
            self._info.subscriptions.pop(event.topic, None)
            for said in self._clients.values():
                said.pop(event.topic, None)
            return
        self._clients.clear()
        self._info.subscriptions.clear()

    def row(self, consumer_group: str, topic: str, now: int) -> SubscriptionInForce:
        held = self._info.subscriptions.get(topic)
        in_force = _says(held) if held else None
        said: Mapping[str, _Says | None] = {
            client: topics.get(topic) for client, topics in sorted(self._clients.items())
        }
        return SubscriptionInForce(
            consumer_group=consumer_group,
            topic=topic,
            valid_from=now,
            valid_to=None,
            expression=in_force[0] if in_force else None,
            expression_type=in_force[1] if in_force else None,
            agreeing=tuple(client for client, own in said.items() if own is not None and own == in_force),
            overruled=tuple(
                ClientSubscription(client, *own) for client, own in said.items() if own is not None and own != in_force
            ),
            absent=tuple(client for client, own in said.items() if own is None),
        )


def _says(subscription: Subscription) -> _Says:
    return subscription["expression"] or "", expression_type(subscription), subscription.get("class_filter_mode", False)
