"""The subscription events between two looks at a broker that runs.

A look shows the clients of each group, and the subscriptions that the broker has of the group. The times between two
looks are not seen, but most changes have a time of their own: a client knows when it started and when it subscribed,
and the broker when it registered an SQL92 filter (its born time). Where there is none, the event has ``since``, the
time of the look before. The event of a group that left has the offsets that it committed last, so the exact time of its
leave decides nothing.

Sources: ConsumerConnection, ConsumerRunningInfo, ConsumerFilterData, ConsumerGroupInfo.updateSubscription.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from filtering.consumer_group_info import ConsumerGroupInfo
from filtering.subscription_data import SQL92, Subscription, expression_type, filter_of
from filtering.subscriptions.events import ConsumeFrom, ConsumeStart, Operation, SubscriptionEvent, in_order


@dataclass(frozen=True)
class WatchedClient:
    """A client of a group. ``address``: of its connection. ``started_at``: ms; 0 if it did not say.

    ``subscriptions``: its own, by topic; None if it did not answer. ``sends_with_pulls``: whether it sends them with
    its pulls. ``protocol``: as in subscription events; None if it is not known.
    """

    address: str
    started_at: int = 0
    subscriptions: Mapping[str, Subscription] | None = None
    consume_from: ConsumeStart = ConsumeFrom.LAST
    sends_with_pulls: bool = False
    protocol: str | None = None


@dataclass(frozen=True)
class WatchedGroup:
    """A group that is online: its clients by client id, and the subscriptions that the broker has, by topic.

    ``born``: by topic, when the broker registered the group's SQL92 filter (ms), where it said so.
    """

    clients: Mapping[str, WatchedClient]
    subscriptions: Mapping[str, Subscription]
    consume_from: ConsumeStart = ConsumeFrom.LAST
    is_broadcasting: bool = False
    born: Mapping[str, int] = field(default_factory=dict)


NOBODY = WatchedGroup({}, {})
"""A group that is not online."""


@dataclass(frozen=True)
class Look:
    """When a broker was looked at (ms): from ``begin`` to ``end``. ``before``: when the last look began, if any."""

    begin: int
    end: int
    before: int | None

    def includes(self, at: int) -> bool:
        """Whether a change at ``at`` (ms) is between the looks."""
        return at <= self.end and (self.before is None or at > self.before)


def asked_again(before: WatchedGroup, now: WatchedGroup) -> list[str]:
    """The clients of which it must be asked what they run: they are new, or may have changed."""
    if _versions(before) != _versions(now):
        return list(now.clients)
    return [
        client_id
        for client_id, client in now.clients.items()
        if client_id not in before.clients or before.clients[client_id].address != client.address
    ]


def _versions(group: WatchedGroup) -> dict[str, tuple[object, int]]:
    return {
        topic: (filter_of(subscription), subscription["version"]) for topic, subscription in group.subscriptions.items()
    }


def changes(
    group: str,
    before: WatchedGroup,
    now: WatchedGroup,
    look: Look,
    committed: Mapping[str, Mapping[int, int]],
    registered: ConsumerGroupInfo,
) -> list[SubscriptionEvent]:
    """The events of a group between two looks, in order. ``committed``: its offsets now, by topic and queue id.

    ``registered``: what the events so far say that the broker has of the group. The events change it.
    """
    return _Changes(group, before, now, look, committed, registered).events()


@dataclass(frozen=True)
class _Changes:
    group: str
    before: WatchedGroup
    now: WatchedGroup
    look: Look
    committed: Mapping[str, Mapping[int, int]]
    registered: ConsumerGroupInfo

    def events(self) -> list[SubscriptionEvent]:
        is_other = {
            client_id: client_id not in self.before.clients
            or _restarted(self.before.clients[client_id], self.now.clients[client_id])
            for client_id in self.now.clients
        }
        gone = [client_id for client_id in self.before.clients if is_other.get(client_id, True)]
        remaining = [client_id for client_id, other in is_other.items() if not other]
        joined = [client_id for client_id, other in is_other.items() if other]
        # Of clients that all were replaced between two looks, it is not known until when the old ones were online.
        is_replaced = bool(gone) and bool(joined) and not remaining
        new_events = [event for each in joined for event in self._joins(each, is_replaced)]
        first_join = min((event.at for event in new_events), default=None)
        new_events += [event for each in remaining for event in self._resubscribes(each)]
        left = [self._leaves(each, first_join if is_replaced else None, bool(self.now.clients)) for each in gone]
        ordered = list(in_order([*left, *new_events]))
        if not self.now.clients:
            self.registered.subscriptions.clear()
            return ordered
        accepted = [self._accepted(event) for event in ordered]
        return [*accepted, *self._in_force(accepted)]

    def _leaves(self, client_id: str, before_join: int | None, is_online: bool) -> SubscriptionEvent:
        look, at = self.look, self.look.end
        if before_join is not None:
            at = before_join if look.before is None else max(before_join - 1, look.before)
        committed = None if is_online else self.committed
        return SubscriptionEvent(
            at, Operation.UNREGISTER, self.group, client_id=client_id, since=look.before, committed=committed
        )

    def _joins(self, client_id: str, is_replaced: bool) -> Iterator[SubscriptionEvent]:
        client, look = self.now.clients[client_id], self.look
        subscriptions = self._own(client)
        born = self._born(subscriptions)
        if born is not None and born >= client.started_at:
            at, since = born, None
        elif client.started_at and look.includes(client.started_at):
            at, since = client.started_at, None
        elif look.before is None:
            at, since = min(client.started_at or look.end, look.end), None
        else:
            at, since = look.end, look.before
        return self._sends(client_id, at, look.before if is_replaced else since, subscriptions)

    def _resubscribes(self, client_id: str) -> Iterator[SubscriptionEvent]:
        client, look = self.now.clients[client_id], self.look
        before, after = self._own(self.before.clients[client_id], self.before), self._own(client)
        filters = {topic: filter_of(subscription) for topic, subscription in before.items()}
        changed = {
            topic: subscription
            for topic, subscription in after.items()
            if filters.get(topic) != filter_of(subscription)
        }
        dropped = [topic for topic in before if topic not in after]
        if not changed and not dropped:
            return iter(())
        times = [subscription["version"] for subscription in changed.values() if look.includes(subscription["version"])]
        born = self._born(changed)
        at = born if born is not None else max(times, default=look.end)
        is_known = born is not None or bool(times)
        committed = {topic: self.committed[topic] for topic in dropped if topic in self.committed}
        return self._sends(client_id, at, None if is_known else look.before, after, committed or None)

    def _sends(
        self,
        client_id: str,
        at: int,
        since: int | None,
        subscriptions: Mapping[str, Subscription],
        committed: Mapping[str, Mapping[int, int]] | None = None,
    ) -> Iterator[SubscriptionEvent]:
        """A client's heartbeat, after what it sends with its pulls."""
        client = self.now.clients[client_id]
        sent = SubscriptionEvent(
            at,
            Operation.HEARTBEAT,
            self.group,
            tuple(subscriptions.values()),
            client_id=client_id,
            consume_from=client.consume_from,
            protocol=client.protocol,
            since=since,
            committed=committed,
        )
        if client.sends_with_pulls:
            for subscription in subscriptions.values():
                yield replace(
                    sent,
                    operation=Operation.PULL_SUBSCRIPTION,
                    subscriptions=(subscription,),
                    protocol=None,
                    committed=None,
                )
        yield sent

    def _own(self, client: WatchedClient, group: WatchedGroup | None = None) -> Mapping[str, Subscription]:
        """The client's own subscriptions, or those of its group if it did not answer."""
        return client.subscriptions if client.subscriptions is not None else (group or self.now).subscriptions

    def _born(self, subscriptions: Mapping[str, Subscription]) -> int | None:
        """When the broker registered these filters between the looks (ms); None if it did not, or there are none."""
        times = [
            self.now.born[topic]
            for topic, subscription in subscriptions.items()
            if topic in self.now.born
            and expression_type(subscription) == SQL92
            and filter_of(self.now.subscriptions.get(topic, subscription)) == filter_of(subscription)
        ]
        return min((at for at in times if self.look.includes(at)), default=None)

    def _accepted(self, event: SubscriptionEvent) -> SubscriptionEvent:
        """The event, with versions by which the broker accepts what it has now."""
        if event.operation is not Operation.HEARTBEAT:
            return event
        newer = []
        for subscription in event.subscriptions:
            known = self.registered.subscriptions.get(subscription["topic"])
            in_force = self.now.subscriptions.get(subscription["topic"])
            is_in_force = in_force is not None and filter_of(in_force) == filter_of(subscription)
            if known is not None and is_in_force and filter_of(known) != filter_of(subscription):
                subscription = _newer(subscription, known)
            newer.append(subscription)
        self.registered.update_subscription(newer)
        return replace(event, subscriptions=tuple(newer))

    def _in_force(self, accepted: Sequence[SubscriptionEvent]) -> Iterator[SubscriptionEvent]:
        """More heartbeats, if the broker has other subscriptions than those: a client sends its own again and again."""
        last = max((event.at for event in accepted), default=self.look.before or 0)
        for topic, subscription in self.now.subscriptions.items():
            known = self.registered.subscriptions.get(topic)
            if known is not None and filter_of(known) == filter_of(subscription):
                continue
            client_id = self._client_of(subscription)
            protocol = self.now.clients[client_id].protocol if client_id is not None else None
            born = self._born({topic: subscription})
            is_known = born is None and self.look.includes(subscription["version"])
            at = max(last, born or (subscription["version"] if is_known else self.look.end))
            since = None if born is not None or is_known else self.look.before
            newer = subscription if known is None else _newer(subscription, known)
            self.registered.update_topic(newer)
            yield SubscriptionEvent(
                at, Operation.REGISTER, self.group, (newer,), client_id=client_id,
                consume_from=self.now.consume_from, protocol=protocol, since=since,
            )  # fmt: skip
        for topic in [topic for topic in self.registered.subscriptions if topic not in self.now.subscriptions]:
            del self.registered.subscriptions[topic]
            yield SubscriptionEvent(
                self.look.end, Operation.UNREGISTER, self.group, topic=topic, since=self.look.before,
                committed={topic: self.committed[topic]} if topic in self.committed else None,
            )  # fmt: skip

    def _client_of(self, subscription: Subscription) -> str | None:
        """A client that has this subscription; None if all have another one."""
        topic = subscription["topic"]
        for client_id, client in self.now.clients.items():
            own = self._own(client).get(topic)
            if own is not None and filter_of(own) == filter_of(subscription):
                return client_id
        return None


def _newer(subscription: Subscription, known: Subscription) -> Subscription:
    return subscription | {"version": max(subscription["version"], known["version"] + 1)}


def _restarted(before: WatchedClient, now: WatchedClient) -> bool:
    return bool(before.started_at and now.started_at and before.started_at != now.started_at)
