"""The broker's registry of SQL92 filters, and one filter in it. Its methods take the time as a parameter.

Sources: ConsumerFilterManager and its FilterDataMapByTopic, ConsumerFilterData.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypedDict

from filtering.bloom_filter import BloomFilter
from filtering.frozen import frozen
from filtering.java import LONG_MAX
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92 import CompiledExpression, Expressions
from filtering.subscription_data import SQL92, Subscription, expression_type, is_tag_type
from filtering.time_spans import DAY

# One group's filter on one topic.


@frozen(slots=True)
class ConsumerFilterData:
    """A filter in the broker's registry. Times are in milliseconds.

    ``dead_time`` is None if the group has not left since it registered. ``compiled`` is None if the broker refuses the
    expression, as one of another version may do with what is in its file; it does not register such an expression.
    """

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    client_version: int
    born_time: int
    dead_time: int | None
    bit_pos: tuple[int, ...]
    bit_num: int
    compiled: CompiledExpression | None

    @property
    def is_dead(self) -> bool:
        return self.dead_time is not None and self.dead_time >= self.born_time


def compile_filter(
    expression_type: str | None, expression: str | None, expressions: Expressions, version: RocketMQVersion = NEWEST
) -> CompiledExpression | str:
    """The compiled filter, or the reason why a broker of this version refuses it (FilterFactory).

    Only SQL92 has a compiler.
    """
    if expression_type != SQL92:
        return f"no filter of type {expression_type}; the broker knows TAG and SQL92"
    compiled = expressions.compile(expression or "", version)
    return compiled if isinstance(compiled, CompiledExpression) else str(compiled)


class FilterState(TypedDict):
    """A filter in the registry. ``deadTime`` is 0 if the group has not left since it registered."""

    topic: str
    group: str
    expression: str
    type: str
    clientVersion: int
    dead: bool
    bornTime: int
    deadTime: int
    bitPos: list[int]
    bitNum: int


class ConsumerFilterManager:
    """The SQL92 filters of a broker whose Bloom filter has an error rate of ``f`` % with ``n`` groups.

    ``now`` is always the time in milliseconds. Raises ValueError if :meth:`BloomFilter.create_by_fn` refuses ``f``
    or ``n``.
    """

    def __init__(
        self,
        f: int,
        n: int,
        filter_data_clean_time_span: int = DAY,
        expressions: Expressions | None = None,
        version: RocketMQVersion = NEWEST,
    ) -> None:
        """``expressions`` compiles the filters. Share it with other code that compiles the same texts."""
        self.bloom_filter = BloomFilter.create_by_fn(f, n)
        self._clean_time_span = filter_data_clean_time_span
        self._expressions = expressions or Expressions()
        self._version = version
        self._by_topic: dict[str, dict[str, ConsumerFilterData]] = {}
        self._topics_of: defaultdict[str, set[str]] = defaultdict(set)

    def register(self, group: str, subscriptions: Iterable[Subscription], now: int) -> None:
        """Registers all subscriptions of ``group``. Its filters on other topics die."""
        if isinstance(subscriptions, Mapping):
            raise TypeError("subscriptions must be a list, not one subscription")
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription["topic"])
            self.register_topic(group, subscription, now)
        for topic in self._topics_of[group] - topics:
            self.unregister_topic(topic, group, now)

    def register_topic(self, group: str, subscription: Subscription, now: int) -> None:
        """Registers one subscription of ``group``; its other topics do not change.

        The broker ignores tags, an empty expression, and an old version. An expression that it refuses removes the
        group's filter on the topic.
        """
        topic, expression, version = subscription["topic"], subscription["expression"], subscription["version"]
        kind = expression_type(subscription)
        if is_tag_type(kind) or not expression:
            return
        groups = self._by_topic.setdefault(topic, {})
        old = groups.get(group)
        if old is not None and version <= old.client_version:
            if version == old.client_version and old.is_dead:
                groups[group] = replace(old, dead_time=None)
            return
        bit_pos = self.bloom_filter.bit_positions(f"{group}#{topic}")
        if old is not None and (old.expression, old.expression_type, old.bit_pos) == (expression, kind, bit_pos):
            groups[group] = replace(old, client_version=version, dead_time=None if old.is_dead else old.dead_time)
            return
        compiled = compile_filter(kind, expression, self._expressions, self._version)
        if isinstance(compiled, str):
            groups.pop(group, None)
            return
        self._topics_of[group].add(topic)
        groups[group] = ConsumerFilterData(
            group, topic, expression, kind, version, now, None, bit_pos, self.bloom_filter.m, compiled
        )

    def unregister(self, group: str, now: int) -> None:
        """The last consumer of ``group`` left: all its filters die."""
        for topic in self._topics_of[group]:
            self.unregister_topic(topic, group, now)

    def unregister_topic(self, topic: str, group: str, now: int) -> None:
        """The filter of ``group`` on ``topic`` dies, if there is one alive."""
        data = self.get(topic, group)
        if data is not None and not data.is_dead:
            self._by_topic[topic][group] = replace(data, dead_time=now)

    def discard(self) -> None:
        """Removes all filters, as a broker does that starts and finds those of another Bloom filter in its file."""
        self._by_topic.clear()
        self._topics_of.clear()

    def compile_again(self, version: RocketMQVersion) -> None:
        """Compiles all filters as a broker of another version does when it loads them.

        A filter that it refuses stays registered without a compiled expression, even if its clients send it again.
        """
        self._version = version
        for groups in self._by_topic.values():
            for group, data in groups.items():
                compiled = compile_filter(data.expression_type, data.expression, self._expressions, version)
                groups[group] = replace(data, compiled=None if isinstance(compiled, str) else compiled)

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of ``group`` on ``topic``, dead or alive."""
        return self._by_topic.get(topic, {}).get(group)

    def topics(self) -> list[str]:
        """The topics for which a group has ever registered, sorted. A topic may have no filter left."""
        return sorted(self._by_topic)

    def state(self) -> list[FilterState]:
        """Every filter, ordered by topic and group."""
        return [
            FilterState(
                topic=data.topic,
                group=data.consumer_group,
                expression=data.expression,
                type=data.expression_type,
                clientVersion=data.client_version,
                dead=data.is_dead,
                bornTime=data.born_time,
                deadTime=data.dead_time or 0,
                bitPos=list(data.bit_pos),
                bitNum=data.bit_num,
            )
            for topic in self.topics()
            for _, data in sorted(self._by_topic[topic].items())
        ]

    def clean_topic(self, topic: str, group: str, now: int) -> None:
        """Removes the filter of ``group`` on ``topic`` if it has been dead for the clean time span.

        The broker does so with all filters every 10 s, when it saves them.
        """
        data = self.get(topic, group)
        cleaned_at = self.cleaned_at(data)
        if cleaned_at is not None and cleaned_at <= now:
            del self._by_topic[topic][group]

    def cleaned_at(self, data: ConsumerFilterData | None) -> int | None:
        """When a dead filter will be removed (ms); None if it never will be, if it is alive, or if there is none."""
        if data is None or data.dead_time is None or not data.is_dead:
            return None
        cleaned_at = data.dead_time + self._clean_time_span
        return cleaned_at if cleaned_at <= LONG_MAX else None
