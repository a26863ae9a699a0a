"""The subscription history: each state of a group's subscription to a topic, and when it was in force."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple, TypeVar

from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_manager import ConsumerFilterManager
from filtering.rocketmq_version import RocketMQVersion
from filtering.sql92 import Expressions
from filtering.subscription_data import SUB_ALL, ConsumerGroupInfo, Subscription, expression_type, is_tag_type
from filtering.subscriptions.events import SENT_WITH_REQUESTS, GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.subscription_row import State, SubscriptionRow, compile_subscription
from filtering.time_spans import BEGINNING

# States that follow each other: each holds until the next one begins.


StateType = TypeVar("StateType", bound=State)


def append_state(states: list[StateType], new: StateType) -> None:
    """Appends a state to those of one group and topic. The last of them ends when the new one begins.

    Of states that begin in one millisecond, only the last counts. A state that changes nothing is not appended.
    """
    if states and states[-1].valid_from == new.valid_from:
        states.pop()
    if states and replace(states[-1], valid_from=new.valid_from, valid_to=None) == new:
        states[-1] = replace(states[-1], valid_to=None)
        return
    if states:
        states[-1] = replace(states[-1], valid_to=new.valid_from)
    states.append(new)


def states_by_key(states: Iterable[StateType]) -> defaultdict[GroupTopic, list[StateType]]:
    """The states of each group and topic, in the same order."""
    by_key: defaultdict[GroupTopic, list[StateType]] = defaultdict(list)
    for state in states:
        by_key[state.key].append(state)
    return by_key


def subscription_history(
    events: Iterable[SubscriptionEvent],
    config: BrokerConfig,
    expressions: Expressions | None = None,
    earlier: Sequence[EarlierConfig] = (),
) -> list[SubscriptionRow]:
    """One row for each state of a group and topic between changes, ordered by group, topic and time.

    ``events`` must be in order of time. If there are several changes in one millisecond, the last state counts. The
    row of a dead filter ends when cleaning is due; a broker cleans it within the next 10 s. ``expressions`` compiles
    the filters: share it with other code that compiles the same texts. ``earlier``: the configurations
    that the broker had before ``config``, in order. When a broker starts with another Bloom filter, it has none of its
    filters any more; one of another version compiles them again. Groups that are online then register again at once.
    """
    replay = _Replay(config, expressions or Expressions(), earlier)
    for event in events:
        replay.apply(event)
    replay.run_until(None)
    return replay.rows()


class EarlierConfig(NamedTuple):
    """A configuration that a broker had before ``until`` (ms)."""

    config: BrokerConfig
    until: int


class _BrokerStart(NamedTuple):
    """A broker starts at ``at`` (ms) with ``version``. ``discards``: and with another Bloom filter than before."""

    at: int
    version: RocketMQVersion
    discards: bool


def _starts(earlier: Sequence[EarlierConfig], config: BrokerConfig) -> Iterator[_BrokerStart]:
    """The starts with another Bloom filter, or with a version that reads expressions otherwise."""
    configs = [*(earlier_config.config for earlier_config in earlier), config]
    for (before, at), after in zip(earlier, configs[1:], strict=True):
        filters = before.bloom_filter, after.bloom_filter
        discards = len({(earlier_config.k, earlier_config.m) for earlier_config in filters}) > 1
        if discards or before.version.has_text_searches != after.version.has_text_searches:
            yield _BrokerStart(at, after.version, discards)


class _Replay:
    """The broker's registries while it handles one event after the other, and the rows so far."""

    def __init__(self, config: BrokerConfig, expressions: Expressions, earlier: Sequence[EarlierConfig]) -> None:
        self._expressions = expressions
        self._version = earlier[0].config.version if earlier else config.version
        self._starts = deque(_starts(earlier, config))
        self._filters = ConsumerFilterManager(
            config.max_error_rate_of_bloom_filter,
            config.expect_consumer_num_use_filter,
            config.filter_data_clean_time_span,
            expressions,
            self._version,
        )
        self._groups: dict[str, ConsumerGroupInfo] = {}
        """The groups that are registered."""
        self._heartbeats: defaultdict[str, dict[str | None, set[str]]] = defaultdict(dict)
        """By group and client, the topics in the client's last heartbeat."""
        self._last_known: dict[GroupTopic, Subscription] = {}
        """The last subscription that was registered, also of groups that left."""
        self._pulled: dict[GroupTopic, Subscription] = {}
        """The subscriptions that groups send with their pulls, or sent until they left."""
        self._pulling: set[GroupTopic] = set()
        """Those of ``_pulled`` whose groups are online."""
        self._topics: defaultdict[str, set[str]] = defaultdict(set)
        """All topics of each group so far."""
        self._due: list[tuple[int, str, str]] = []
        """A heap of the times (ms) at which dead filters are cleaned, with the topic and the group."""
        self._rows: defaultdict[GroupTopic, list[SubscriptionRow]] = defaultdict(list)

    def apply(self, event: SubscriptionEvent) -> None:
        self.run_until(event.at)
        group, now = event.group, event.at
        topics = {subscription["topic"] for subscription in event.subscriptions}
        self._topics[group] |= topics
        if event.operation is Operation.RESET_OFFSET:
            return
        if event.operation in SENT_WITH_REQUESTS:
            self._pulled |= {(group, each["topic"]): each for each in event.subscriptions}
            self._pulling |= {(group, topic) for topic in topics}
        elif event.operation is Operation.UNREGISTER:
            self._unregister(event)
            topics = self._topics[group] if event.topic is None else {event.topic}
        else:
            self._register(event)
            if event.operation is Operation.HEARTBEAT:
                self._stop_pulls(group, event.client_id, topics)
                topics = self._topics[group]
        for topic in topics:
            self._record(group, topic, now)
            cleaned_at = self._filters.cleaned_at(self._filters.get(topic, group))
            if cleaned_at is not None:
                heapq.heappush(self._due, (cleaned_at, topic, group))

    def _register(self, event: SubscriptionEvent) -> None:
        group = event.group
        info = self._groups.setdefault(group, ConsumerGroupInfo())
        if event.operation is Operation.HEARTBEAT:
            info.update_subscription(event.subscriptions, event.client_id)
            self._filters.register(group, event.subscriptions, event.at)
        else:
            (new,) = event.subscriptions
            info.update_topic(new, event.client_id)
            self._filters.register_topic(group, new, event.at)
        for subscription in event.subscriptions:
            topic = subscription["topic"]
            if topic in info.subscriptions:
                self._last_known[group, topic] = info.subscriptions[topic]
            if (group, topic) not in self._pulling:
                self._pulled.pop((group, topic), None)

    def _unregister(self, event: SubscriptionEvent) -> None:
        group = event.group
        if not self._groups.get(group, ConsumerGroupInfo()).unregister(event.client_id, event.topic):
            self._stop_pulls(group, event.client_id, set())
            return
        if event.topic is None:
            self._heartbeats.pop(group, None)
            self._groups.pop(group, None)
            self._filters.unregister(group, event.at)
            self._pulling -= {(group, topic) for topic in self._topics[group]}
            return
        self._pulling.discard((group, event.topic))
        if group in self._groups:
            self._filters.unregister_topic(event.topic, group, event.at)

    def _stop_pulls(self, group: str, client_id: str | None, topics: set[str]) -> None:
        """A client no longer pulls the topics that its heartbeat leaves out."""
        clients = self._heartbeats[group]
        before, clients[client_id] = clients.get(client_id, set()), topics
        self._pulling -= {(group, topic) for topic in before.difference(*clients.values())}

    def run_until(self, now: int | None) -> None:
        """Starts the broker again and cleans the filters as is due up to ``now`` (ms); None: to the end."""
        while self._starts and (now is None or self._starts[0].at <= now):
            start = self._starts.popleft()
            self._clean_until(start.at)
            self._start(start)
        self._clean_until(now)

    def _start(self, start: _BrokerStart) -> None:
        self._version = start.version
        if start.discards:
            self._filters.discard()
        self._filters.compile_again(start.version)
        for group, info in self._groups.items():
            self._filters.register(group, info.subscriptions.values(), start.at)
        for group, topic in list(self._rows):
            self._record(group, topic, start.at)

    def _clean_until(self, now: int | None) -> None:
        while self._due and (now is None or self._due[0][0] <= now):
            due, topic, group = heapq.heappop(self._due)
            self._filters.clean_topic(topic, group, due)
            self._record(group, topic, due)

    def _record(self, group: str, topic: str, now: int) -> None:
        key = group, topic
        info = self._groups.get(group)
        registered = info.subscriptions.get(topic) if info else None
        pulled = self._pulled.get(key)
        subscription = pulled or registered or self._last_known.get(key)
        if subscription is None:
            return
        type_ = expression_type(subscription)
        class_filter_mode = subscription.get("class_filter_mode", False)
        tags = SUB_ALL if class_filter_mode and is_tag_type(type_) else subscription["expression"]
        row = SubscriptionRow(
            consumer_group=group,
            topic=topic,
            valid_from=now,
            valid_to=None,
            expression=subscription["expression"],
            expression_type=type_,
            sub_version=subscription["version"],
            registered=registered is not None,
            sent_with_pull=pulled is not None,
            is_consuming=registered is not None or key in self._pulling,
            class_filter_mode=class_filter_mode,
            compiled=compile_subscription(topic, tags, type_, self._expressions, self._version),
            filter_data=self._filters.get(topic, group),
        )
        append_state(self._rows[key], row)

    def rows(self) -> list[SubscriptionRow]:
        return [row for key in sorted(self._rows) for row in self._rows[key]]


# The subscriptions in force at an instant, after some events, or if a group had only one.


def in_force_at(history: Iterable[StateType], instant: int) -> list[StateType]:
    return [row for row in history if row.holds_at(instant)]


def state_at(states: Iterable[StateType], instant: int) -> StateType | None:
    """The state of one group and topic that is valid at ``instant`` (ms); None if there is none."""
    return next(iter(in_force_at(states, instant)), None)


def in_force_after(
    events: Sequence[SubscriptionEvent],
    broker: BrokerConfig,
    expressions: Expressions | None = None,
    since: int = BEGINNING,
) -> list[SubscriptionRow]:
    """The subscriptions in force after all of ``events``, and not before ``since`` (ms)."""
    end = max([since, *(event.at for event in events)])
    return in_force_at(subscription_history(events, broker, expressions), end)


def registered_alone(group: str, subscription: Subscription, broker: BrokerConfig) -> SubscriptionRow:
    """A subscription as it would be in force if the group had no other one."""
    event = SubscriptionEvent(0, Operation.REGISTER, group, (subscription,))
    (row,) = subscription_history([event], broker)
    return row


def present_filter(history: Iterable[SubscriptionRow], instant: int) -> SubscriptionRow | None:
    """The first state with the filter that is in force at ``instant`` (ms), and was since then; None if there is none.

    ``history`` has the states of one group and topic, in order.
    """
    before = [row for row in history if row.valid_from <= instant]
    if state_at(before, instant) is None:
        return None
    same = takewhile(lambda row: row.filter == before[-1].filter, reversed(before))
    return list(same)[-1]
