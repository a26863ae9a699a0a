"""The subscriptions table: who had which subscription in force, when."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_manager import ConsumerFilterManager, Subscription, expression_type
from filtering.subscription_data import SUB_ALL, is_tag_type
from filtering.subscriptions.compiled_subscription import compile_subscription
from filtering.subscriptions.consumer_filter_data import ConsumerFilterData
from filtering.subscriptions.consumer_group_info import ConsumerGroupInfo
from filtering.subscriptions.events import Operation, SubscriptionEvent

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """What was in force for a group on a topic, for messages stored in [valid_from, valid_to).

    Times are milliseconds; ``valid_to`` None means still in force. ``expression`` is what a pull is
    answered with: the subscription sent with the pull (``sent_with_pull``, which uses no bit map), the
    registered one, or, where the group has left (not ``registered``), the last it had. ``tags_set``
    and ``code_set``, sorted, are those of a TAG subscription; ``predicate`` is Spark SQL for an SQL92
    one; ``compile_error`` says why the broker refuses the expression. A TAG subscription in
    ``class_filter_mode`` has the name of a class for an expression, and no tags.

    ``filter_expression``, ``filter_version``, ``born_time``, ``dead_time`` (None while alive),
    ``bit_pos`` and ``bit_num`` are the ConsumerFilterData in the broker's registry, None where it has
    none. It decides what the bit maps hold, outlives a change of the subscription to TAG, and stays
    while dead until it is cleaned.
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
    class_filter_mode: bool
    tags_set: tuple[str, ...] | None
    code_set: tuple[int, ...] | None
    predicate: str | None
    compile_error: str | None
    filter_expression: str | None
    filter_version: int | None
    born_time: int | None
    dead_time: int | None
    bit_pos: tuple[int, ...] | None
    bit_num: int | None


def subscription_history(events: Iterable[SubscriptionEvent], config: BrokerConfig) -> list[SubscriptionRow]:
    """One row a state of a (group, topic) between changes, ordered by group, topic and time.

    ``events`` are in order of time. Of changes in one millisecond the last state counts. A dead
    filter's row ends when it becomes due for cleaning, which a broker does within the next 10 s.
    """
    replay = _Replay(config)
    for event in events:
        replay.apply(event)
    replay.run_until(None)
    return replay.rows()


class _Replay:
    def __init__(self, config: BrokerConfig) -> None:
        self._filters = ConsumerFilterManager(
            config.max_error_rate_of_bloom_filter,
            config.expect_consumer_num_use_filter,
            config.filter_data_clean_time_span,
        )
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._clients: defaultdict[str, set[str]] = defaultdict(set)
        self._last_known: dict[Key, Subscription] = {}
        self._pulled: dict[Key, Subscription] = {}
        self._topics: defaultdict[str, set[str]] = defaultdict(set)
        self._due: list[tuple[int, str, str]] = []
        self._rows: defaultdict[Key, list[SubscriptionRow]] = defaultdict(list)

    def apply(self, event: SubscriptionEvent) -> None:
        self.run_until(event.at)
        group, now = event.group, event.at
        for each in event.subscriptions:
            self._topics[group].add(each["topic"])
        if event.operation is Operation.PULL_SUBSCRIPTION:
            (subscription,) = event.subscriptions
            self._pulled[group, subscription["topic"]] = subscription
        elif event.operation is Operation.UNREGISTER:
            self._unregister(event)
        else:
            self._register(event)
        for topic in self._topics[group]:
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
            (each,) = event.subscriptions
            info.update_topic(each)
            self._filters.register_topic(
                each["topic"], group, each["expression"], each["type"], each["version"], event.at
            )
        for topic, subscription in info.subscriptions.items():
            self._last_known[group, topic] = subscription

    def _unregister(self, event: SubscriptionEvent) -> None:
        group = event.group
        if event.client_id is not None:
            self._clients[group].discard(event.client_id)
            if self._clients[group]:
                return
        if event.topic is None:
            self._groups.pop(group, None)
            self._filters.unregister(group, event.at)
        elif group in self._groups:
            self._groups[group].subscriptions.pop(event.topic, None)
            self._filters.unregister_topic(event.topic, group, event.at)

    def run_until(self, now: int | None) -> None:
        """Forgets the filters that became due for cleaning up to ``now``; all of them where it is None."""
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
        row = _row(
            group, subscription, now, registered is not None, pulled is not None, self._filters.get(topic, group)
        )
        rows = self._rows[key]
        if rows and rows[-1].valid_from == now:
            rows.pop()
        if rows:
            if replace(rows[-1], valid_from=now, valid_to=None) == row:
                rows[-1] = replace(rows[-1], valid_to=None)
                return
            rows[-1] = replace(rows[-1], valid_to=now)
        rows.append(row)

    def rows(self) -> list[SubscriptionRow]:
        return [row for key in sorted(self._rows) for row in self._rows[key]]


def _row(
    group: str,
    subscription: Subscription,
    now: int,
    registered: bool,
    sent_with_pull: bool,
    data: ConsumerFilterData | None,
) -> SubscriptionRow:
    expression = subscription["expression"]
    class_filter_mode = subscription.get("class_filter_mode", False)
    type_ = expression_type(subscription)
    tags = SUB_ALL if class_filter_mode and is_tag_type(type_) else expression
    compiled = compile_subscription(subscription["topic"], tags, type_)
    return SubscriptionRow(
        consumer_group=group,
        topic=subscription["topic"],
        valid_from=now,
        valid_to=None,
        expression=expression,
        expression_type=type_,
        sub_version=subscription["version"],
        registered=registered,
        sent_with_pull=sent_with_pull,
        class_filter_mode=class_filter_mode,
        tags_set=compiled.tags_set,
        code_set=compiled.code_set,
        predicate=compiled.predicate,
        compile_error=compiled.compile_error,
        filter_expression=data.expression if data else None,
        filter_version=data.client_version if data else None,
        born_time=data.born_time if data else None,
        dead_time=data.dead_time if data else None,
        bit_pos=data.bit_pos if data else None,
        bit_num=data.bit_num if data else None,
    )
