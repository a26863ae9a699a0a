"""The subscription events between two looks at a broker that runs.

A look shows the clients of each group, and the subscriptions that the broker has of the group. The times between two
looks are not seen, but most changes have a time of their own: a client knows when it started and when it subscribed,
and the broker when it registered an SQL92 filter (its born time). Where there is none, the time of the later look is
taken. But of several changes, only the last is seen. So the event of a change has ``since``, the time of the look
before: what the group subscribed to in between is not known. Only a client that comes, and has subscribed to nothing
else since then, has none. Before a first look, nothing was seen: the clients that it finds have 0.

Committed offsets are exact. The event of a group that left a topic has those that it had then, so the time of its leave
decides nothing; the event of a group that comes back has those at which it goes on. If they move while the group is
away, there is an event, too.

Sources: ConsumerConnection, ConsumerRunningInfo, ConsumerFilterData, ConsumerGroupInfo.updateSubscription,
RebalancePushImpl.messageQueueChanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace

from filtering.frozen import frozen
from filtering.names import is_retry_topic
from filtering.subscription_data import SQL92, ConsumerGroupInfo, Subscription, expression_type, filter_of
from filtering.subscriptions.events import ConsumeFrom, ConsumeStart, Operation, SubscriptionEvent, in_order

ALLOCATION = 2_000
"""ms: a client of Java gives its subscriptions a new version when it gets other queues: at its start, and when another
client comes. 0.1 to 1.3 s were seen. A later version is that of a new subscription."""


@frozen
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


@frozen
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


@frozen
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


OffsetsByTopic = Mapping[str, Mapping[int, int]]
"""Committed offsets of a group, by topic and queue id."""


def changes(
    group: str,
    before: WatchedGroup,
    now: WatchedGroup,
    look: Look,
    committed: OffsetsByTopic,
    registered: ConsumerGroupInfo,
    committed_before: OffsetsByTopic | None = None,
    left: Collection[str] = (),
) -> list[SubscriptionEvent]:
    """The events of a group between two looks, in order. ``committed``: its offsets now, by topic and queue id.

    ``registered``: what the events so far say that the broker has of the group. The events change it.
    ``committed_before``: its offsets at the look before. ``left``: the topics that it had left by then.
    """
    return _Changes(group, before, now, look, committed, registered, committed_before or {}, left).events()


@frozen
class _Changes:
    group: str
    before: WatchedGroup
    now: WatchedGroup
    look: Look
    committed: OffsetsByTopic
    registered: ConsumerGroupInfo
    committed_before: OffsetsByTopic
    left: Collection[str]

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
        may_overlap = is_replaced and not self.now.clients.keys() >= set(gone)
        new_events = [event for each in joined for event in self._joins(each, may_overlap)]
        first_join = min((event.at for event in new_events), default=None)
        new_events += [event for each in remaining for event in self._resubscribes(each, bool(gone or joined))]
        left = [self._leaves(each, first_join if is_replaced else None, bool(remaining)) for each in gone]
        ordered = list(in_order([*left, *new_events]))
        if self.now.clients:
            ordered = [self._accepted(event) for event in ordered]
            ordered += self._in_force(ordered)
        else:
            self.registered.subscriptions.clear()
        return [*ordered, *self._moved_offsets()]

    def _moved_offsets(self) -> Iterator[SubscriptionEvent]:
        """Offsets that changed in topics that the group had left, and has not come back to."""
        for topic in sorted(self.left):
            offsets = self.committed.get(topic)
            if topic not in self.now.subscriptions and offsets and offsets != self.committed_before.get(topic):
                yield SubscriptionEvent(
                    self.look.end, Operation.UNREGISTER, self.group, topic=topic, since=self.look.before,
                    committed={topic: offsets},
                )  # fmt: skip

    def _leaves(self, client_id: str, before_join: int | None, are_others_online: bool) -> SubscriptionEvent:
        """A client left. If its group did, or left a topic, its offsets there are known."""
        look, at = self.look, self.look.end
        if before_join is not None:
            at = before_join if look.before is None else max(before_join - 1, look.before)
        offsets = {topic: queues for topic, queues in self.committed.items() if topic not in self.now.subscriptions}
        return SubscriptionEvent(
            at,
            Operation.UNREGISTER,
            self.group,
            client_id=client_id,
            since=look.before,
            committed=None if are_others_online else offsets or None,
        )

    def _joins(self, client_id: str, may_overlap: bool) -> Iterator[SubscriptionEvent]:
        """A client's heartbeat when it came, and one more if it has subscribed to something since then.

        What it subscribed to in between is not known, and at a first look, what its group did before. ``may_overlap``:
        the clients before it may have left after it came, and not before the look.
        """
        client, look = self.now.clients[client_id], self.look
        subscriptions = self._own(client)
        born = self._born(subscriptions)
        started = client.started_at
        unseen = 0 if look.before is None else None
        is_renewed = started > 0 and any(self._is_new(each, started) for each in subscriptions.values())
        if born is not None and born >= started and not is_renewed:
            at, since = born, unseen
        elif started and look.includes(started):
            at, since = started, unseen
        elif look.before is None:
            at, since = min(started or look.end, look.end), unseen
        else:
            at, since = born or look.end, look.before
        later = {topic: each for topic, each in subscriptions.items() if may_overlap or self._is_new(each, at)}
        first = {topic: each | {"version": min(each["version"], at)} for topic, each in later.items()}
        yield from self._sends(client_id, at, since, {**subscriptions, **first})
        if later:
            newer = {topic: each | {"version": max(each["version"], at + 1)} for topic, each in later.items()}
            until = look.end if may_overlap else max(born or 0, *(each["version"] for each in newer.values()))
            yield from self._sends(client_id, until, at, {**subscriptions, **newer})

    def _is_new(self, subscription: Subscription, since: int) -> bool:
        """Whether a client has subscribed after ``since`` (ms), or got other queues though no client had just come."""
        version = subscription["version"]
        starts = (since, *(client.started_at for client in self.now.clients.values()))
        is_allocation = any(start <= version <= start + ALLOCATION for start in starts)
        is_retried = is_retry_topic(subscription["topic"])
        return since < version <= self.look.end and not (is_allocation or is_retried)

    def _resubscribes(self, client_id: str, are_others_new: bool) -> Iterator[SubscriptionEvent]:
        """``are_others_new``: clients came or left, so that this one may have got other queues."""
        client, look = self.now.clients[client_id], self.look
        before, after = self._own(self.before.clients[client_id], self.before), self._own(client)
        dropped = [topic for topic in before if topic not in after]
        changed = {}
        for topic, subscription in after.items():
            is_same = topic in before and filter_of(before[topic]) == filter_of(subscription)
            if not is_same or (
                not are_others_new
                and subscription["version"] != before[topic]["version"]
                and self._is_new(subscription, look.before or 0)
            ):
                changed[topic] = subscription
        if not changed and not dropped:
            return iter(())
        times = [subscription["version"] for subscription in changed.values() if look.includes(subscription["version"])]
        born = self._born(changed)
        at = born if born is not None else max(times, default=look.end)
        committed = {topic: self.committed[topic] for topic in dropped if topic in self.committed}
        same = {topic: before[topic] for topic in after if topic not in changed}
        return self._sends(client_id, at, look.before, {**after, **same}, committed or None)

    def _sends(
        self,
        client_id: str,
        at: int,
        since: int | None,
        subscriptions: Mapping[str, Subscription],
        committed: OffsetsByTopic | None = None,
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
        """The event, with versions by which the broker accepts what it has now.

        With it, the group comes to topics to which nobody subscribed: there, it has the offsets of the look before.
        """
        if event.operation is not Operation.HEARTBEAT:
            return event
        newer = []
        begins: dict[str, Mapping[int, int]] = {}
        for subscription in event.subscriptions:
            topic = subscription["topic"]
            known = self.registered.subscriptions.get(topic)
            in_force = self.now.subscriptions.get(topic)
            is_in_force = in_force is not None and filter_of(in_force) == filter_of(subscription)
            if known is not None and is_in_force and filter_of(known) != filter_of(subscription):
                subscription = _newer(subscription, known)
            if known is None and topic not in self.before.subscriptions and topic in self.committed_before:
                begins[topic] = self.committed_before[topic]
            newer.append(subscription)
        self.registered.update_subscription(newer)
        return replace(event, subscriptions=tuple(newer), committed={**begins, **(event.committed or {})} or None)

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
            is_known = self.look.includes(subscription["version"])
            at = max(last, born or (subscription["version"] if is_known else self.look.end))
            newer = subscription if known is None else _newer(subscription, known)
            self.registered.update_topic(newer)
            yield SubscriptionEvent(
                at, Operation.REGISTER, self.group, (newer,), client_id=client_id,
                consume_from=self.now.consume_from, protocol=protocol, since=self.look.before,
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
