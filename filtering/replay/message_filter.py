"""What decides whether a group gets a message, lowered to predicates.

Source: org.apache.rocketmq.broker.filter.ExpressionMessageFilter and ExpressionForRetryMessageFilter,
org.apache.rocketmq.client.impl.consumer.PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from filtering import sql92
from filtering.broker_config import BrokerConfig
from filtering.predicate import FALSE, TRUE, And, Not, Or, Predicate, TagsCodeIn, TextIn
from filtering.pulls.pull import ResponseCode, pull_refusal
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
    broker refuses (see :func:`refusal`) has no filter.
    """
    in_force = {(row.consumer_group, row.topic): row for row in rows}
    return [_message_filter(row, in_force, config) for row in in_force.values() if refusal(row, config) is None]


def refusal(row: SubscriptionRow, config: BrokerConfig) -> ResponseCode | None:
    """Why the broker refuses the pulls of a subscription in force, were its group there."""
    if not row.registered and not row.sent_with_pull:
        # Coming back, the group registers anew: its filter data is there again unless it does not compile.
        there = row.sub_version if row.compile_error is None else None
        row = replace(row, registered=True, filter_version=row.filter_version or there)
    return pull_refusal(row, row.sub_version, config)


def _message_filter(
    row: SubscriptionRow, in_force: dict[tuple[str, str], SubscriptionRow], config: BrokerConfig
) -> MessageFilter:
    group, topic = row.consumer_group, row.topic
    if row.class_filter_mode:
        return MessageFilter(group, topic)
    if is_tag_type(row.expression_type):
        return _tag_filter(row)
    if row.sent_with_pull:
        if config.filter_support_retry and topic.startswith(RETRY_TOPIC_PREFIX):
            expression, failure = _of_retried_messages(group, in_force)
            return MessageFilter(group, topic, expression=expression, failure=failure)
        return _sql92_filter(row, row.expression, ())
    if row.filter_expression is None:
        return _sql92_filter(row, row.expression, ())
    held_against_bit_map = config.enable_consume_queue_ext and row.bit_num == config.bloom_filter.m
    return _sql92_filter(row, row.filter_expression, row.bit_pos or () if held_against_bit_map else ())


def _sql92_filter(row: SubscriptionRow, expression: str | None, bit_pos: tuple[int, ...]) -> MessageFilter:
    """An expression that does not compile, which only a pull can bring so far, lets every message pass."""
    try:
        compiled = sql92.compile(expression or "")
    except sql92.InvalidExpression:
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


def _of_retried_messages(group: str, in_force: dict[tuple[str, str], SubscriptionRow]) -> tuple[Predicate, Predicate]:
    """Where, and where by failing not, a retried message passes the filter data of the topic it was first sent to.

    A message of a topic for which the group has none passes.
    """
    compiled = {
        topic: sql92.compile(row.filter_expression)
        for (of, topic), row in in_force.items()
        if of == group and row.filter_expression is not None
    }
    of_topic = {topic: TextIn(RETRY_TOPIC_PROPERTY, frozenset((topic,))) for topic in compiled}
    unfiltered = Not(TextIn(RETRY_TOPIC_PROPERTY, frozenset(of_topic)))
    passes = Or((unfiltered, *(And((of_topic[topic], compiled[topic].predicate)) for topic in compiled)))
    fails = Or((FALSE, *(And((of_topic[topic], compiled[topic].error_predicate)) for topic in compiled)))
    return passes, fails
