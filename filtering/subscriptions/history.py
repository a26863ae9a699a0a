"""The subscription history: each state of a group's subscription to a topic, and when it was in force."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from filtering import garbage_collection
from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_data import ConsumerFilterData
from filtering.consumer_filter_manager import ConsumerFilterManager, Filter, Subscription, expression_type
from filtering.consumer_group_info import ConsumerGroupInfo
from filtering.sql92 import Expressions
from filtering.subscription_data import SUB_ALL, TAG, is_tag_type
from filtering.subscriptions.compiled_subscription import CompiledSubscription, compile_subscription
from filtering.subscriptions.events import GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.states import append_state


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """The state of a group's subscription to a topic, for messages stored in [valid_from, valid_to).

    Times are in milliseconds; ``valid_to`` None means still in force. ``expression`` is the one that the broker uses
    for pulls: the one sent with the pull (``sent_with_pull``; it uses no bit map), the registered one, or the last
    one if the group has left (not ``registered``). A TAG subscription in ``class_filter_mode`` has the name of a
    class as its expression, and no tags. ``is_consuming``: the group is online, whether the broker accepts its pulls
    or not.

    ``filter_data`` is the ConsumerFilterData in the broker's registry, or None. It sets bits in the bit maps. It
    remains if the subscription changes to TAG, and after its death until it is cleaned.
    """

    consumer_group: str
    topic: str
    valid_from: int
    valid_to: int | None
    expression: str | None
    expression_type: str
    sub_version: int
    registered: bool
    sent_with_pull: bool
    is_consuming: bool
    class_filter_mode: bool
    compiled: CompiledSubscription
    filter_data: ConsumerFilterData | None

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def filter(self) -> Filter:
        """The filter, to compare it with that of another state or subscription."""
        return self.expression or "", self.expression_type, self.class_filter_mode

    @property
    def filter_text(self) -> str:
        """The type and the expression on one line, as in ``SQL92 price > 5``."""
        return f"{self.expression_type or TAG} {' '.join((self.expression or SUB_ALL).split())}"

    @property
    def takes_every_message(self) -> bool:
        """Whether the broker and the client filter nothing (ExpressionMessageFilter, FilterAPI)."""
        is_any_tag = is_tag_type(self.expression_type) and self.expression in (None, "", SUB_ALL)
        return self.class_filter_mode or is_any_tag

    @property
    def tags_set(self) -> tuple[str, ...] | None:
        """The tags, sorted, of a TAG subscription."""
        return self.compiled.tags_set

    @property
    def code_set(self) -> tuple[int, ...] | None:
        """The tags' hash codes, sorted, of a TAG subscription."""
        return self.compiled.code_set

    @property
    def compile_error(self) -> str | None:
        """Why the broker refuses the expression."""
        return self.compiled.compile_error

    @property
    def filter_expression(self) -> str | None:
        return self.filter_data.expression if self.filter_data else None

    @property
    def filter_version(self) -> int | None:
        return self.filter_data.client_version if self.filter_data else None

    @property
    def born_time(self) -> int | None:
        """The born time of the ConsumerFilterData in ms."""
        return self.filter_data.born_time if self.filter_data else None

    @property
    def dead_time(self) -> int | None:
        """The dead time of the ConsumerFilterData in ms; None while it is alive."""
        return self.filter_data.dead_time if self.filter_data else None

    @property
    def bit_pos(self) -> tuple[int, ...] | None:
        """The positions of the group and topic in the filter bit map."""
        return self.filter_data.bit_pos if self.filter_data else None

    @property
    def bit_num(self) -> int | None:
        """The number of bits of the filter bit map."""
        return self.filter_data.bit_num if self.filter_data else None


def subscription_history(
    events: Iterable[SubscriptionEvent], config: BrokerConfig, expressions: Expressions | None = None
) -> list[SubscriptionRow]:
    """One row for each state of a group and topic between changes, ordered by group, topic and time.

    ``events`` must be in order of time. If there are several changes in one millisecond, the last state counts. The
    row of a dead filter ends when cleaning is due; a broker cleans it within the next 10 s. ``expressions`` compiles
    the filters: share it with other code that compiles the same texts.
    """
    replay = _Replay(config, expressions or Expressions())
    with garbage_collection.paused():
        for event in events:
            replay.apply(event)
    replay.run_until(None)
    return replay.rows()


class _Replay:
    def __init__(self, config: BrokerConfig, expressions: Expressions) -> None:
        self._expressions = expressions
        self._filters = ConsumerFilterManager(
            config.max_error_rate_of_bloom_filter,
            config.expect_consumer_num_use_filter,
            config.filter_data_clean_time_span,
            expressions,
        )
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._clients: defaultdict[str, set[str]] = defaultdict(set)
        self._heartbeats: defaultdict[str, dict[str | None, set[str]]] = defaultdict(dict)  # topics by client
        self._last_known: dict[GroupTopic, Subscription] = {}
        self._pulled: dict[GroupTopic, Subscription] = {}
        self._pulling: set[GroupTopic] = set()
        self._topics: defaultdict[str, set[str]] = defaultdict(set)
        self._due: list[tuple[int, str, str]] = []
        self._rows: defaultdict[GroupTopic, list[SubscriptionRow]] = defaultdict(list)

    def apply(self, event: SubscriptionEvent) -> None:
        self.run_until(event.at)
        group, now = event.group, event.at
        topics = {subscription["topic"] for subscription in event.subscriptions}
        self._topics[group] |= topics
        if event.operation is Operation.RESET_OFFSET:
            return
        if event.operation is Operation.PULL_SUBSCRIPTION:
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
        if event.client_id is not None:
            self._clients[group].add(event.client_id)
        info = self._groups.setdefault(group, ConsumerGroupInfo())
        if event.operation is Operation.HEARTBEAT:
            info.update_subscription(event.subscriptions)
            self._filters.register(group, event.subscriptions, event.at)
        else:
            (new,) = event.subscriptions
            info.update_topic(new)
            self._filters.register_topic(group, new, event.at)
        for subscription in event.subscriptions:
            topic = subscription["topic"]
            if topic in info.subscriptions:
                self._last_known[group, topic] = info.subscriptions[topic]

    def _unregister(self, event: SubscriptionEvent) -> None:
        group = event.group
        if event.client_id is not None:
            self._clients[group].discard(event.client_id)
            if self._clients[group]:
                self._stop_pulls(group, event.client_id, set())
                return
        if event.topic is None:
            self._clients.pop(group, None)
            self._heartbeats.pop(group, None)
            self._groups.pop(group, None)
            self._filters.unregister(group, event.at)
            self._pulling -= {(group, topic) for topic in self._topics[group]}
            return
        self._pulling.discard((group, event.topic))
        if group in self._groups:
            self._groups[group].subscriptions.pop(event.topic, None)
            self._filters.unregister_topic(event.topic, group, event.at)

    def _stop_pulls(self, group: str, client_id: str | None, topics: set[str]) -> None:
        """A client no longer pulls the topics that its heartbeat leaves out."""
        clients = self._heartbeats[group]
        before, clients[client_id] = clients.get(client_id, set()), topics
        self._pulling -= {(group, topic) for topic in before.difference(*clients.values())}

    def run_until(self, now: int | None) -> None:
        """Clean the filters that are due up to ``now`` (ms); None: all of them."""
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
            compiled=compile_subscription(topic, tags, type_, self._expressions),
            filter_data=self._filters.get(topic, group),
        )
        append_state(self._rows[key], row)

    def rows(self) -> list[SubscriptionRow]:
        return [row for key in sorted(self._rows) for row in self._rows[key]]
