"""The filters that decide whether a group gets a message, as predicates, at one instant and in a night.

Source: org.apache.rocketmq.broker.filter.ExpressionMessageFilter and ExpressionForRetryMessageFilter,
org.apache.rocketmq.client.impl.consumer.PullAPIWrapper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from filtering.broker_config import BrokerConfig
from filtering.frozen import frozen
from filtering.names import is_retry_topic, subscribed_topic
from filtering.predicate import FALSE, TRUE, And, IsPresent, Not, Or, Predicate, TagsCodeIn, TextIn
from filtering.pulls import is_pulling, refusal
from filtering.sql92 import CompiledExpression
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import ConsumeMode, GroupTopic
from filtering.subscriptions.history import in_force_at
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_code

RETRY_TOPIC_PROPERTY = "RETRY_TOPIC"
TAGS_PROPERTY = "TAGS"


@frozen(slots=True)
class MessageFilter:
    """The filters of one group's subscription to one topic: stages 1 and 2 at the broker, then the client's."""

    consumer_group: str
    topic: str
    tags: Predicate = TRUE
    """Stage 1, on the consume queue entry's tags code."""
    bit_pos: tuple[int, ...] = ()
    """Stage 1, on the entry's filter bit map: all of these bits must be set. Empty: no bit map is used."""
    born_time: int = 0
    """ms: the bit map is used only for messages stored after this time."""
    expression: Predicate = TRUE
    """Stage 2, on the message's properties."""
    failure: Predicate = FALSE
    """True if the evaluation of the expression fails. The message then does not match."""
    client_tags: Predicate = TRUE
    """The client's exact comparison of tags."""
    most_attempts: int | None = None
    """A message that was handed out this often before is given up (DEAD). None: no message is."""

    @property
    def delivered(self) -> Predicate:
        """What the group gets, if no bit map stops it."""
        if self.tags is TRUE and self.client_tags is TRUE:
            return self.expression
        return And((self.tags, self.expression, self.client_tags))

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def client_checks_same_tags(self) -> bool:
        """Whether the broker and the client check the same tags. The client then drops only hash collisions."""
        return isinstance(self.client_tags, TextIn) and self.tags == TagsCodeIn(
            frozenset(tags_code(tag) for tag in self.client_tags.texts)
        )


def message_filters(rows: Iterable[SubscriptionRow], config: BrokerConfig) -> list[MessageFilter]:
    """The filters of the subscriptions in ``rows``, which are all in force at one instant.

    A group that has left has the filter that it would have if it came back. A subscription whose pulls the broker
    refuses has no filter.
    """
    in_force = {row.key: row for row in rows}
    filters = [message_filter(row, in_force.values(), config) for row in in_force.values()]
    return [subscription_filter for subscription_filter in filters if subscription_filter is not None]


def message_filter(
    row: SubscriptionRow, in_force: Iterable[SubscriptionRow], config: BrokerConfig, most_attempts: int | None = None
) -> MessageFilter | None:
    """The filter of a subscription; None if the broker refuses its pulls.

    ``in_force``: the group's other subscriptions in force; a retry topic needs them (see :func:`reads_others`).
    ``most_attempts``: how often the group gets a message, if it pops.
    """
    if refusal(row, config) is not None:
        return None
    own = _own_filter(row, config)
    if row.pops:
        own = replace(own, most_attempts=most_attempts)
    if reads_others(row, config):
        expression, failure = _retry_predicates(expressions_by_topic(row.consumer_group, in_force))
        return replace(own, expression=expression, failure=failure)
    return own


def _own_filter(row: SubscriptionRow, config: BrokerConfig) -> MessageFilter:
    """The filter of a subscription that the broker accepts, without what the group's other ones add."""
    if row.takes_every_message:
        return MessageFilter(*row.key)
    if is_tag_type(row.expression_type):
        tags = TagsCodeIn(frozenset(row.code_set or ()))
        return MessageFilter(*row.key, tags=tags, client_tags=tag_check(row.tags_set))
    compiled = own_expression(row)
    if compiled is None:  # possible only if it is sent with pulls: then every message passes
        return MessageFilter(*row.key)
    return MessageFilter(
        *row.key,
        bit_pos=_checked_bits(row, config),
        born_time=row.born_time or 0,
        expression=compiled.predicate,
        failure=compiled.error_predicate,
    )


def reads_others(row: SubscriptionRow, config: BrokerConfig) -> bool:
    """Whether the filter depends on the group's other subscriptions (ExpressionForRetryMessageFilter)."""
    is_retry = is_retry_topic(row.topic) and not row.class_filter_mode
    if row.pops or not config.filter_support_retry or not is_retry:
        return False
    return config.version.filters_redeliveries_to_tags or not is_tag_type(row.expression_type)


def own_expression(row: SubscriptionRow) -> CompiledExpression | None:
    """The expression of an SQL92 subscription that the broker evaluates; None if it does not compile."""
    if row.sent_with_pull or row.pops or row.filter_data is None:
        return row.compiled.expression
    return row.filter_data.compiled


def expressions_by_topic(group: str, in_force: Iterable[SubscriptionRow]) -> dict[str, CompiledExpression]:
    """By topic, the expressions of a group's filter data. That of the original topic filters a retried message."""
    return {
        row.topic: expression
        for row in in_force
        if row.consumer_group == group and row.filter_data is not None and (expression := row.filter_data.compiled)
    }


def tag_check(tags: Iterable[str] | None) -> Predicate:
    """A client's check of its tags (PullAPIWrapper.processPullResult). Without tags, it lets every message pass."""
    return TextIn(TAGS_PROPERTY, frozenset(tags)) if tags else TRUE


def delivers(row: SubscriptionRow) -> Predicate | None:
    """The predicate over a message's properties that is true if a subscription delivers it. None: it does not compile.

    A tag subscription delivers a message if the tag matches at the client: the hash at the broker then matches, too.
    """
    if row.compile_error is not None:
        return None
    if row.takes_every_message:
        return TRUE
    if row.compiled.expression is not None:
        return row.compiled.expression.predicate
    return tag_check(row.tags_set) if row.tags_set else FALSE


def _checked_bits(row: SubscriptionRow, config: BrokerConfig) -> tuple[int, ...]:
    """The positions in the bit map that stage 1 of an SQL92 subscription checks; empty if it uses no bit map."""
    data = None if row.sent_with_pull or row.pops else row.filter_data
    if data is None or not config.enable_consume_queue_ext or data.bit_num != config.bloom_filter.m:
        return ()
    return data.bit_pos


def _retry_predicates(compiled: Mapping[str, CompiledExpression]) -> tuple[Predicate, Predicate]:
    """Predicates for retried messages: the filter data of the original topic matches, and its evaluation fails.

    A message whose original topic has no filter data of the group passes. One without an original topic fails
    (NullPointerException).
    """
    has_topic = IsPresent(RETRY_TOPIC_PROPERTY)
    is_from_topic = {topic: TextIn(RETRY_TOPIC_PROPERTY, frozenset((topic,))) for topic in compiled}
    unfiltered = And((has_topic, Not(TextIn(RETRY_TOPIC_PROPERTY, frozenset(is_from_topic)))))
    passes = Or((unfiltered, *(And((is_from_topic[topic], compiled[topic].predicate)) for topic in compiled)))
    fails = Or((Not(has_topic), *(And((is_from_topic[topic], compiled[topic].error_predicate)) for topic in compiled)))
    return passes, fails


# The filters of groups at any time.


class FiltersInForce:
    """The message filters of one group, from all states (``rows``) of its subscriptions.

    ``most_attempts``: how often it gets a message that it pops.
    """

    def __init__(self, rows: Sequence[SubscriptionRow], config: BrokerConfig, most_attempts: int) -> None:
        self._rows = rows
        self._config = config
        self._most_attempts = most_attempts

    @property
    def are_reset_by_clients(self) -> bool:
        """Whether the clients of a group that is online reset its offsets, some time after the command."""
        return not self._config.version.resets_offsets_itself

    def is_pulling(self, row: SubscriptionRow) -> bool:
        """Whether the group is online with this subscription, and the broker accepts its pulls."""
        return is_pulling(row, self._config)

    def at(self, row: SubscriptionRow, instant: int) -> MessageFilter:
        """The filter of a subscription that is pulling at an instant (ms)."""
        others = in_force_at(self._rows, instant) if reads_others(row, self._config) else ()
        own_filter = message_filter(row, others, self._config, self._most_attempts)
        assert own_filter is not None
        return own_filter

    def during(self, row: SubscriptionRow, begin: int, end: int) -> Iterable[tuple[int, int, MessageFilter]]:
        """The filters of a subscription in [``begin``, ``end``) (ms), each with its part of that interval."""
        cuts = [begin, end]
        if reads_others(row, self._config):
            cuts[1:1] = sorted({other.valid_from for other in self._rows if begin < other.valid_from < end})
        for start, stop in pairwise(cuts):
            yield start, stop, self.at(row, max(start, row.valid_from))


class NightFilters:
    """The message filters of all groups in a night, from its history of subscriptions and its configuration.

    ``most_attempts`` returns how often a group gets a message that it pops.
    """

    def __init__(
        self, history: Iterable[SubscriptionRow], config: BrokerConfig, most_attempts: Callable[[str], int]
    ) -> None:
        self._rows: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
        for row in history:
            self._rows[row.consumer_group].append(row)
        self._filters = {
            group: FiltersInForce(rows, config, most_attempts(group)) for group, rows in self._rows.items()
        }

    def at(self, key: GroupTopic, valid_from: int, instant: int, mode: ConsumeMode = ConsumeMode.PULL) -> MessageFilter:
        """The filter at an instant (ms) of the subscription of a group and topic that is in force since then (ms).

        With the ``mode`` POP, that of a request which pops the topic, which may be a retry topic.
        """
        group, topic = key
        rows = {row.topic: row for row in in_force_at(self._rows[group], valid_from)}
        row = rows.get(topic) or rows[subscribed_topic(group, topic)]
        row = replace(row, mode=mode)
        return self._filters[group].at(row if row.topic == topic else row.of_retry_topic(topic), instant)
