"""Which clients of a group had the subscription in force on a topic, and which had another one.

Source: ConsumerManager.registerConsumer, ConsumerGroupInfo.updateSubscription. The broker keeps one subscription for
a group and topic, the one with the highest version. The list of every heartbeat replaces the group's topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from filtering.counted import listed, shortened
from filtering.frozen import frozen
from filtering.subscription_data import ConsumerGroupInfo, Filter, filter_of
from filtering.subscriptions.events import GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.history import append_state, states_by_key
from filtering.subscriptions.subscription_row import State, SubscriptionRow

FLIP_BACK = 600_000
"""ms: a filter that comes back later than this after another one replaced it counts as an ordinary change.

The clients of a group notice within seconds that another one joined, and then send their subscriptions again
(RebalancePushImpl.messageQueueChanged).
"""
NAMED, LONGEST = 3, 60
"""Filters in a text, and characters of each."""


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """The subscription in a client's own last heartbeat."""

    client_id: str
    expression: str
    expression_type: str
    class_filter_mode: bool = False

    @property
    def filter(self) -> Filter:
        return self.expression, self.expression_type, self.class_filter_mode


@frozen(slots=True)
class GroupClients(State):
    """The clients of a group on a topic, and the subscription in force.

    ``expression`` and ``expression_type`` are those that
    the broker used for the pulls of all clients. They are None if the group had no subscription to the topic, because
    a client's heartbeat did not list it: the broker refuses pulls until another heartbeat lists it. ``agreeing``
    clients have the subscription in force. ``overruled`` clients have another one: the group loses messages that match
    theirs but not the one in force. ``absent`` clients do not subscribe to the topic, but are still assigned some of
    its queues, which no client then reads.
    """

    expression: str | None
    expression_type: str | None
    class_filter_mode: bool
    agreeing: tuple[str, ...]
    overruled: tuple[ClientSubscription, ...]
    absent: tuple[str, ...]

    @property
    def is_consistent(self) -> bool:
        return not self.overruled and not self.absent

    @property
    def clients(self) -> frozenset[str]:
        return frozenset((*self.agreeing, *(client.client_id for client in self.overruled), *self.absent))

    @property
    def filters(self) -> dict[Filter, list[str]]:
        """The distinct filters of clients, the one in force first, each with the ids of its clients."""
        in_force = self.expression or "", self.expression_type or "", self.class_filter_mode
        clients = {} if self.expression_type is None else {in_force: [*self.agreeing]}
        for client in self.overruled:
            clients.setdefault(client.filter, []).append(client.client_id)
        return clients


@frozen(slots=True)
class SeemingDisagreement(State):
    """Clients without ids seem to subscribe differently.

    The filters of ``rows``, one row for each, replaced each other, and one of them came back at ``seen_at`` (ms),
    although the group never left. Which client has which filter is not known.
    """

    seen_at: int
    rows: tuple[SubscriptionRow, ...]

    @property
    def text(self) -> str:
        """What is seen, and what to collect."""
        filters = listed([shortened(row.filter_text, LONGEST) for row in self.rows], NAMED)
        return (
            f"two clients seem to disagree: the group was never away, and its filter went back and forth ({filters}). "
            "Which client reads which queue is not known: collect subscription events with client_id"
        )


def seeming_disagreements(
    history: Iterable[SubscriptionRow], events: Iterable[SubscriptionEvent]
) -> list[SeemingDisagreement]:
    """When groups without client ids seem to have clients that disagree, by group, topic and time.

    Each client sends its subscription again with a new version when another client joins or leaves. So the filter of a
    group whose clients disagree goes back and forth. That ends when the group leaves, or takes a filter that is new.
    ``history``: the states of each group and topic in order, of all ``events``.
    """
    with_clients = {event.group for event in events if event.client_id is not None}
    states = states_by_key(row for row in history if row.consumer_group not in with_clients)
    return [disagreement for key in sorted(states) for disagreement in _seeming(states[key])]


def _seeming(rows: Iterable[SubscriptionRow]) -> list[SeemingDisagreement]:
    """Those of one group and topic."""
    disagreements: list[SeemingDisagreement] = []
    changes: list[SubscriptionRow] = []
    """The first row of each filter in force since the group came, in order."""
    for row in rows:
        if row.is_consuming and changes and changes[-1].filter == row.filter:
            continue
        is_open = bool(disagreements) and disagreements[-1].valid_to is None
        if is_open and not (row.is_consuming and any(row.filter == other.filter for other in disagreements[-1].rows)):
            disagreements[-1] = replace(disagreements[-1], valid_to=row.valid_from)
            is_open = False
        if not row.is_consuming:
            changes = []
            continue
        same = [i for i, other in enumerate(changes) if other.filter == row.filter]
        if same and not is_open and row.valid_from - changes[same[-1] + 1].valid_from <= FLIP_BACK:
            since = changes[same[-1] :]
            filters = tuple({other.filter: other for other in since}.values())
            disagreements.append(SeemingDisagreement(*row.key, since[1].valid_from, None, row.valid_from, filters))
        changes.append(row)
    return disagreements


def group_clients(events: Iterable[SubscriptionEvent]) -> list[GroupClients]:
    """The :func:`client_states` of groups and topics to which a client subscribes."""
    return [state for state in client_states(events) if state.agreeing or state.overruled]


def differing_states(events: Iterable[SubscriptionEvent]) -> list[GroupClients]:
    """The :func:`client_states` in which clients have different subscriptions."""
    return [state for state in client_states(events) if state.overruled]


def client_states(events: Iterable[SubscriptionEvent]) -> list[GroupClients]:
    """Every state of a group and topic, also without clients that subscribe to it, ordered by group, topic and time.

    ``events`` must be in order of time. An event without a client id changes the subscription in force, but not the
    subscription of a client. A client stays until it unregisters. Subscriptions sent with pulls do not count: the
    broker registers none of them (PullMessageProcessor).
    """
    events = list(events)
    with_clients = {event.group for event in events if event.client_id is not None}
    groups: dict[str, ConsumerGroupInfo] = defaultdict(ConsumerGroupInfo)
    topics: dict[str, set[str]] = defaultdict(set)
    rows: dict[GroupTopic, list[GroupClients]] = defaultdict(list)
    for event in events:
        name = event.group
        if name not in with_clients:
            continue
        topics[name].update(subscription["topic"] for subscription in event.subscriptions)
        if event.operation is Operation.HEARTBEAT:
            groups[name].update_subscription(event.subscriptions, event.client_id)
        elif event.operation is Operation.REGISTER:
            (new,) = event.subscriptions
            groups[name].update_topic(new, event.client_id)
        elif event.operation is Operation.UNREGISTER:
            groups[name].unregister(event.client_id, event.topic)
        for topic in topics[name]:
            append_state(rows[name, topic], _clients_on(topic, name, groups[name], event.at))
    return [row for key in sorted(rows) for row in rows[key]]


def _clients_on(topic: str, consumer_group: str, info: ConsumerGroupInfo, at: int) -> GroupClients:
    """The state that begins at ``at`` (ms)."""
    subscription = info.subscriptions.get(topic)
    in_force = filter_of(subscription) if subscription else None
    own = {client: filters.get(topic) for client, filters in sorted(info.clients.items())}
    expression, expression_type, class_filter_mode = in_force or (None, None, False)
    return GroupClients(
        consumer_group=consumer_group,
        topic=topic,
        valid_from=at,
        valid_to=None,
        expression=expression,
        expression_type=expression_type,
        class_filter_mode=class_filter_mode,
        agreeing=tuple(client for client, filter_ in own.items() if filter_ and filter_ == in_force),
        overruled=tuple(
            ClientSubscription(client, *filter_) for client, filter_ in own.items() if filter_ and filter_ != in_force
        ),
        absent=tuple(client for client, filter_ in own.items() if not filter_),
    )
