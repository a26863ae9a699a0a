"""Which client of a group reads which queue, and which tags that client checks.

Source: AllocateMessageQueueAveragely, PullAPIWrapper.processPullResult. The broker filters for all clients of a
group with the one subscription in force, by tags or SQL92. A client that subscribes to tags then compares each
message's tag with them. So a group whose clients subscribe differently loses messages: in each queue, those that
the client which reads it does not subscribe to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from filtering.counted import counted
from filtering.delivery.message_filter import TAGS_PROPERTY, tag_check
from filtering.delivery.pull_window import NO_END, PullWindow, Reason, UncertainRange
from filtering.frozen import frozen
from filtering.predicate import FALSE, TRUE, And, Predicate, TextIn, holds
from filtering.sql92 import EvaluationError, InvalidExpression, compile
from filtering.subscription_data import TAG, build_subscription_data, is_tag_type
from filtering.subscriptions.events import GroupTopic, SubscriptionEvent
from filtering.subscriptions.history import state_at, states_by_key
from filtering.subscriptions.inconsistency import ClientSubscription, GroupClients, client_states, group_clients

MADE_UP = 0
"""The queue id of all messages of a topic, if they have no real ones."""


@frozen
class ClientTags:
    """The clients of a group check different tags in [``valid_from``, ``valid_to``) (ms).

    ``by_queue`` has the check of the client that reads each queue, by queue id. It is None if that client does not
    subscribe to the topic: then no client reads the queue. If messages have no queue ids, ``by_queue`` is empty, and
    ``possible`` has the checks of all clients, of which one applies to each message.
    """

    valid_from: int
    valid_to: int
    by_queue: Mapping[int, Predicate | None]
    possible: tuple[Predicate | None, ...] = ()

    @property
    def passed_by_some(self) -> Predicate:
        """The check of messages that at least one client keeps."""
        checks = [check for check in self.possible if check is not None]
        texts = [check.texts for check in checks if isinstance(check, TextIn)]
        return TextIn(TAGS_PROPERTY, frozenset().union(*texts)) if len(texts) == len(checks) else TRUE

    @property
    def passed_by_all(self) -> Predicate:
        """The check of messages that every client keeps."""
        checks = [FALSE if check is None else check for check in self.possible]
        return And(tuple(checks))


def allocate_averagely(queue_ids: Iterable[int], clients: Iterable[str]) -> dict[int, str]:
    """The client of each queue id: clients, sorted as in Java by UTF-16 units, get consecutive queues."""
    readers = sorted(clients, key=lambda client: client.encode("utf-16-be"))
    parts = np.array_split(sorted(queue_ids), len(readers))
    return {queue_id: client for client, part in zip(readers, parts, strict=True) for queue_id in part.tolist()}


def disagreeing_states(events: Iterable[SubscriptionEvent]) -> list[GroupClients]:
    """The states in which a client (with an id) checks other tags than those in force, or reads none of its queues."""
    return [
        state
        for state in client_states(events)
        if not state.is_consistent
        and state.expression_type is not None
        and any(check is not _check(state.topic, state) for check in _checks(state).values())
    ]


def tag_disagreements(
    states: Iterable[GroupClients], queue_ids: Callable[[str], Collection[int]], has_queue_ids: bool = True
) -> dict[GroupTopic, list[ClientTags]]:
    """By group and topic, what the client of each queue checks in ``states``.

    ``queue_ids`` returns the queues of a topic. Without any, there is nothing to read. ``has_queue_ids``: whether
    messages have their real ones; if not, a topic counts as one queue, and clients that check alike decide it.
    """
    disagreements: defaultdict[GroupTopic, list[ClientTags]] = defaultdict(list)
    for state in states:
        checks = tuple(dict.fromkeys(_checks(state).values()))
        if not has_queue_ids and len(checks) > 1:
            disagreements[state.key].append(ClientTags(state.valid_from, state.end, {}, checks))
        elif queues := queue_ids(state.topic) if has_queue_ids else [MADE_UP]:
            disagreements[state.key].append(ClientTags(state.valid_from, state.end, _by_queue(state, queues)))
    return dict(disagreements)


def drop_differently(state: GroupClients) -> bool:
    """Whether it depends on the client what is dropped of a message, and not only of tags that share a hash."""
    checks = _checks(state).values()
    return len(set(checks)) > 1 and bool(set(checks) - {TRUE, _check(state.topic, state)})


def client_checks(state: GroupClients) -> dict[str, Predicate]:
    """The check of tags of each client that subscribes to the topic, by client id."""
    checks = dict.fromkeys(state.agreeing, _check(state.topic, state))
    return checks | {client.client_id: _check(state.topic, client) for client in state.overruled}


def assumption(queues: int) -> str:
    """What was assumed of a topic of which only the ``queues`` with messages are known, and how to know them all.

    0: the messages have no queue ids.
    """
    if not queues:
        return (
            "its clients subscribe differently, and the messages have no queue ids, so which client reads a message "
            "is not known: what only some of the clients keep counts as delivered, and as uncertain. Give messages "
            "with queue_id, queue_offset and commitlog_offset, or a --store, in a new --warehouse"
        )
    known = counted(queues, "queue with messages counts", "queues with messages count")
    return (
        "its clients subscribe differently, and how many queues they share is not known: the "
        f"{known}. If there are more, other clients read some of these. To be exact, give nightly a --store with "
        "config/topics.json, and --redo-from 0"
    )


def _checks(state: GroupClients) -> dict[str, Predicate | None]:
    """The check of each client, by client id; None if it does not subscribe to the topic."""
    return {**dict.fromkeys(state.absent), **client_checks(state)}


def _by_queue(state: GroupClients, queue_ids: Iterable[int]) -> dict[int, Predicate | None]:
    checks = _checks(state)
    return {queue_id: checks[client] for queue_id, client in allocate_averagely(queue_ids, checks).items()}


def _check(topic: str, subscription: ClientSubscription | GroupClients) -> Predicate:
    if subscription.expression_type != TAG or subscription.class_filter_mode:
        return TRUE
    try:
        return tag_check(build_subscription_data(topic, subscription.expression).tags_set)
    except ValueError:
        return TRUE


def _subscribes(topic: str, client: ClientSubscription, properties: Mapping[str, str]) -> bool:
    """Whether a client's own subscription, tags or SQL92, matches a message."""
    if client.class_filter_mode or is_tag_type(client.expression_type):
        return holds(_check(topic, client), properties)
    try:
        return compile(client.expression).evaluate(properties) is True
    except (InvalidExpression, EvaluationError):
        return False


class ClientChecks:
    """The checks of tags of each client at any instant. Events without client ids do not count.

    The tables do not have all queues of a topic, so it is not known which client read which queue.
    """

    def __init__(self, events: Iterable[SubscriptionEvent]) -> None:
        states = [state for state in group_clients(events) if not state.is_consistent]
        self._states = states_by_key(state for state in states if state.expression_type is not None)
        self._without_subscription = states_by_key(state for state in states if state.expression_type is None)

    def ever_differ(self, consumer_group: str, topic: str) -> bool:
        """Whether clients ever subscribed differently."""
        key = consumer_group, topic
        return key in self._states or key in self._without_subscription

    def at(self, consumer_group: str, topic: str, instant: int) -> dict[str, Predicate]:
        """The check of each client at an instant (ms), by client id; none if the clients subscribe alike."""
        state = state_at(self._states.get((consumer_group, topic), ()), instant)
        return {} if state is None else client_checks(state)

    def disagreeing(self, consumer_group: str, topic: str, instant: int, properties: Mapping[str, str]) -> bool:
        """Whether only some of the clients keep a message that the broker returned at an instant (ms)."""
        state = state_at(self._states.get((consumer_group, topic), ()), instant)
        if state is None:
            return False
        return len({check is not None and holds(check, properties) for check in _checks(state).values()}) > 1

    def without_subscription(self, consumer_group: str, topic: str, instant: int) -> GroupClients | None:
        """The clients, if the broker has no subscription of the group at an instant (ms), though a client has one.

        The heartbeat of another client did not list the topic: the broker refuses pulls with SUBSCRIPTION_NOT_EXIST.
        """
        return state_at(self._without_subscription.get((consumer_group, topic), ()), instant)

    def subscribing(self, consumer_group: str, topic: str, instant: int, properties: Mapping[str, str]) -> list[str]:
        """The ids of the clients that subscribe to a message at an instant (ms), though not as the one in force."""
        state = state_at(self._states.get((consumer_group, topic), ()), instant)
        overruled = () if state is None else state.overruled
        return [client.client_id for client in overruled if _subscribes(topic, client, properties)]


def passes_in_force(state: GroupClients, properties: Mapping[str, str]) -> bool:
    """Whether a client with the subscription in force keeps a message that the broker returned."""
    return holds(_check(state.topic, state), properties)


def dropping_clients(checks: Mapping[str, Predicate], properties: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The tags of the clients that drop a message, by client id."""
    return {
        client: check.texts
        for client, check in checks.items()
        if isinstance(check, TextIn) and not holds(check, properties)
    }


# Pull windows for each client.


def by_client(window: PullWindow, clients: ClientTags) -> Iterator[PullWindow]:
    """Splits a window by client. Queues that no client reads are left out."""
    if clients.possible:
        checked = replace(window.message_filter, client_tags=clients.passed_by_some)
        yield replace(window, message_filter=checked, is_of_client=True)
    for check in dict.fromkeys(clients.by_queue.values()):
        if check is not None:
            queues = [queue_id for queue_id, queue_check in clients.by_queue.items() if queue_check is check]
            yield _narrowed(window, queues, check)


def kept_by_some(window: PullWindow, clients: ClientTags, begins: Mapping[int, int] | None = None) -> UncertainRange:
    """The messages of a window that only some of the clients keep, from offsets in ``begins`` on, by queue id."""
    returned = window.message_filter.tags, window.message_filter.expression
    offsets = window.offsets or {queue_id: (begin, NO_END) for queue_id, begin in (begins or {}).items()}
    by_all, by_some = (And((*returned, passed)) for passed in (clients.passed_by_all, clients.passed_by_some))
    return UncertainRange.in_window(replace(window, offsets=offsets), by_all, by_some, Reason.READER_NOT_KNOWN)


def unread(window: PullWindow, clients: ClientTags) -> Iterator[tuple[int, PullWindow]]:
    """What :func:`by_client` leaves out: queue ids, each with its window."""
    for queue_id, check in clients.by_queue.items():
        if check is None:
            part = _narrowed(window, [queue_id], window.message_filter.client_tags)
            low, high = part.offsets[queue_id]
            if low < high:
                yield queue_id, part


def read_from(queue_id: int, at: int, clients: Sequence[ClientTags]) -> int:
    """The first time (ms) from ``at`` on at which a client reads a queue; FOREVER if none does."""
    for part in clients:
        if part.valid_from <= at < part.valid_to and part.by_queue.get(queue_id, TRUE) is None:
            at = part.valid_to
    return at


def by_time(window: PullWindow, clients: Sequence[ClientTags]) -> Iterator[tuple[PullWindow, ClientTags | None]]:
    """Splits a window by the times at which clients check different tags. Each part has its clients if they do."""
    at = window.available_at
    begin, end = (window.stored_from, window.stored_to) if at is None else (at, at + 1)
    overlapping = [part for part in clients if part.valid_from < end and begin < part.valid_to]
    if not overlapping:
        yield window, None
        return
    for part in overlapping:
        if begin < part.valid_from:
            yield replace(window, stored_from=begin, stored_to=part.valid_from), None
        during = (
            window
            if at is not None
            else replace(window, stored_from=max(begin, part.valid_from), stored_to=min(end, part.valid_to))
        )
        yield during, part
        begin = part.valid_to
    if begin < end:
        yield replace(window, stored_from=begin), None


def _narrowed(window: PullWindow, queue_ids: Iterable[int], client_tags: Predicate) -> PullWindow:
    ranges = {queue_id: window.range_of(queue_id) for queue_id in queue_ids}
    checked = replace(window.message_filter, client_tags=client_tags)
    return replace(window, message_filter=checked, offsets=ranges, only_listed=True, is_of_client=True)
