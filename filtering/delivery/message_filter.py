"""What decides whether a group gets a message, lowered to predicates.

Source: org.apache.rocketmq.broker.filter.ExpressionMessageFilter and ExpressionForRetryMessageFilter,
org.apache.rocketmq.client.impl.consumer.PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_data import ConsumerFilterData
from filtering.predicate import FALSE, TRUE, And, Not, Or, Predicate, TagsCodeIn, TextIn
from filtering.pulls.pull import refusal
from filtering.sql92 import CompiledExpression
from filtering.subscription_data import SUB_ALL, is_tag_type
from filtering.subscriptions.history import SubscriptionRow
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX

RETRY_TOPIC_PROPERTY = "RETRY_TOPIC"
TAGS_PROPERTY = "TAGS"


@dataclass(frozen=True)
class MessageFilter:
    """The three filters of one group's subscription to one topic."""

    consumer_group: str
    topic: str
    tags: Predicate = TRUE
    """Stage 1, on the consume queue entry's tags code."""
    bit_pos: tuple[int, ...] = ()
    """Stage 1, on the entry's filter bit map: all of these bits are set. Empty: no bit map is used."""
    born_time: int = 0
    """ms: only messages stored after it are held against the bit map."""
    expression: Predicate = TRUE
    """Stage 2, on the message's properties."""
    failure: Predicate = FALSE
    """Where evaluating the expression fails, which counts as not matching."""
    client_tags: Predicate = TRUE
    """The client's exact comparison of tags."""


def message_filters(rows: Iterable[SubscriptionRow], config: BrokerConfig) -> list[MessageFilter]:
    """The filters of the subscriptions in ``rows``, which are all in force at one instant.

    A group that has left gets what it would get if it came back. A subscription whose pulls the
    broker refuses has no filter.
    """
    in_force = {(row.consumer_group, row.topic): row for row in rows}
    found = [message_filter(row, in_force.values(), config) for row in in_force.values()]
    return [each for each in found if each is not None]


def message_filter(
    row: SubscriptionRow, in_force: Iterable[SubscriptionRow], config: BrokerConfig
) -> MessageFilter | None:
    """The filter of a subscription, None where the broker refuses its pulls.

    ``in_force``: the group's other subscriptions in force; a retry topic needs them (see :func:`reads_others`).
    """
    if refusal(row, config) is not None:
        return None
    group, topic = row.consumer_group, row.topic
    if row.class_filter_mode:
        return MessageFilter(group, topic)
    if is_tag_type(row.expression_type):
        return _tag_filter(row)
    if reads_others(row, config):
        expression, failure = _of_retried_messages(group, in_force)
        return MessageFilter(group, topic, expression=expression, failure=failure)
    if row.sent_with_pull or row.filter_data is None:
        return _sql92_filter(row, row.compiled.expression, ())
    held_against_bit_map = config.enable_consume_queue_ext and row.filter_data.bit_num == config.bloom_filter.m
    return _sql92_filter(row, _compiled(row.filter_data), row.filter_data.bit_pos if held_against_bit_map else ())


def reads_others(row: SubscriptionRow, config: BrokerConfig) -> bool:
    """Whether the filter depends on the group's other subscriptions (ExpressionForRetryMessageFilter)."""
    is_retry = row.topic.startswith(RETRY_TOPIC_PREFIX)
    return config.filter_support_retry and is_retry and row.sent_with_pull and not is_tag_type(row.expression_type)


def _compiled(data: ConsumerFilterData) -> CompiledExpression | None:
    return data.compiled if isinstance(data.compiled, CompiledExpression) else None


def _sql92_filter(row: SubscriptionRow, compiled: CompiledExpression | None, bit_pos: tuple[int, ...]) -> MessageFilter:
    """An expression that does not compile, which only a pull can bring so far, lets every message pass."""
    if compiled is None:
        return MessageFilter(row.consumer_group, row.topic)
    return MessageFilter(
        row.consumer_group,
        row.topic,
        bit_pos=bit_pos,
        born_time=row.born_time or 0,
        expression=compiled.predicate,
        failure=compiled.error_predicate,
    )


def _tag_filter(row: SubscriptionRow) -> MessageFilter:
    if row.expression in (None, "", SUB_ALL):
        return MessageFilter(row.consumer_group, row.topic)
    tags = frozenset(row.tags_set or ())
    return MessageFilter(
        row.consumer_group,
        row.topic,
        tags=TagsCodeIn(frozenset(row.code_set or ())),
        client_tags=TextIn(TAGS_PROPERTY, tags) if tags else TRUE,
    )


def _of_retried_messages(group: str, in_force: Iterable[SubscriptionRow]) -> tuple[Predicate, Predicate]:
    """Where, and where by failing not, a retried message passes the filter data of the topic it was first sent to.

    A message of a topic for which the group has none passes.
    """
    compiled = {
        row.topic: found
        for row in in_force
        if row.consumer_group == group and row.filter_data is not None and (found := _compiled(row.filter_data))
    }
    of_topic = {topic: TextIn(RETRY_TOPIC_PROPERTY, frozenset((topic,))) for topic in compiled}
    unfiltered = Not(TextIn(RETRY_TOPIC_PROPERTY, frozenset(of_topic)))
    passes = Or((unfiltered, *(And((of_topic[topic], compiled[topic].predicate)) for topic in compiled)))
    fails = Or((FALSE, *(And((of_topic[topic], compiled[topic].error_predicate)) for topic in compiled)))
    return passes, fails
