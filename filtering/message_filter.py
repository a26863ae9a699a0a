"""What decides whether a group gets a message, lowered to predicates.

Source: org.apache.rocketmq.broker.filter.ExpressionMessageFilter and ExpressionForRetryMessageFilter,
org.apache.rocketmq.client.impl.consumer.PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filtering import sql92
from filtering.broker_config import BrokerConfig
from filtering.predicate import FALSE, TRUE, And, Not, Or, Predicate, TagsCodeIn, TextIn
from filtering.subscription_data import SUB_ALL, is_tag_type
from filtering.subscription_history import SubscriptionRow

RETRY_TOPIC_PREFIX = "%RETRY%"
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

    A subscription whose pulls the broker refuses (see filtering.pull) has none.
    """
    in_force = {(row.consumer_group, row.topic): row for row in rows}
    filters = (_message_filter(row, in_force, config) for row in in_force.values())
    return [message_filter for message_filter in filters if message_filter is not None]


def _message_filter(
    row: SubscriptionRow, in_force: dict[tuple[str, str], SubscriptionRow], config: BrokerConfig
) -> MessageFilter | None:
    group, topic = row.consumer_group, row.topic
    if is_tag_type(row.expression_type):
        return _tag_filter(row)
    if not config.enable_property_filter or row.expression is None:
        return None
    if row.sent_with_pull and config.filter_support_retry and topic.startswith(RETRY_TOPIC_PREFIX):
        expression, failure = _of_retried_messages(group, in_force)
        return MessageFilter(group, topic, expression=expression, failure=failure)
    uses_filter_data = row.filter_expression is not None and not row.sent_with_pull
    text = row.filter_expression if uses_filter_data else row.expression
    if text is None or (row.registered and not row.sent_with_pull and not uses_filter_data):
        return None
    try:
        compiled = sql92.compile(text)
    except sql92.InvalidExpression:
        return None
    held_against_bit_map = uses_filter_data and config.enable_consume_queue_ext and row.bit_num == config.bloom_filter.m
    return MessageFilter(
        group,
        topic,
        bit_pos=(row.bit_pos or ()) if held_against_bit_map else (),
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


def _of_retried_messages(
    group: str, in_force: dict[tuple[str, str], SubscriptionRow]
) -> tuple[Predicate, Predicate]:
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
