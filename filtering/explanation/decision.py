"""Applies the filters of one subscription to one message, in the broker's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from filtering.bloom_filter import is_hit
from filtering.broker_config import BrokerConfig
from filtering.counted import listed, shortened
from filtering.delivery.block_schema import Outcome
from filtering.delivery.message_filter import (
    RETRY_TOPIC_PROPERTY,
    TAGS_PROPERTY,
    MessageFilter,
    expressions_by_topic,
    message_filter,
    own_expression,
    reads_others,
)
from filtering.explanation.trace import ExpressionPart, Result, evaluated, trace
from filtering.frozen import frozen
from filtering.names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from filtering.predicate import holds
from filtering.pulls import refusal
from filtering.sql92 import CompiledExpression, on_one_line
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_code

# The reasons for decisions as text, one line each, or as a headline and its detail.


NAMED = 3
LONGEST = 60

Reason = tuple[str, str]
"""A headline, and its detail."""


def refused(code: str, compile_error: str | None) -> str:
    why = f", because it does not compile: {on_one_line(compile_error)}" if compile_error else ""
    return f"the broker refuses every pull with {code}{why}"


def other_tag(tag: str | None, tags: Sequence[str]) -> str:
    """The entry's tags code is not one of the subscribed tags."""
    subscribed = listed([quoted(tag) for tag in tags], NAMED)
    has = "the message has no tag" if tag is None else f"the tag is {quoted(tag)}"
    return (
        f"{has}; the group subscribes to {subscribed}"
        if tags
        else f"{has}; the subscription names no tag, and matches nothing"
    )


def other_tag_same_hash(tag: str | None, tags: Sequence[str]) -> str:
    """The tags code matched at the broker, but the client compares the text of the tags."""
    code = tags_code(tag)
    has = "no tag" if tag is None else f"the tag {quoted(tag)}"
    colliding = [other for other in tags if tags_code(other) == code]
    shares = (
        f"has the hash of {quoted(colliding[0])}, {code}" if colliding else "is not one that this client subscribes to"
    )
    return f"the client drops it: {has} {shares}; the broker compares hashes only"


def dropped_by_other_client(tags_of: Mapping[str, Iterable[str]]) -> str:
    """The client that reads the queue has other tags. ``tags_of``: those that may read it, with their tags."""
    clients = [f"{client} subscribes to {', '.join(map(quoted, sorted(tags)))}" for client, tags in tags_of.items()]
    reads = f" drops it: {' or '.join(clients[:NAMED])}" if clients else " subscribes to other tags"
    return f"the client that reads the queue{reads}; the subscription in force is that of another client"


def overruled(clients: Sequence[str]) -> str:
    """The broker stopped the message, although some clients of the group subscribe to its tag."""
    subscribe = "subscribes" if len(clients) == 1 else "subscribe"
    return f"{listed(clients, NAMED)} {subscribe} to it, but the broker has the subscription of another client"


def without_subscription(clients: Sequence[str], absent: Sequence[str]) -> str:
    """Another client's heartbeat did not list the topic."""
    subscribe = "subscribes" if len(clients) == 1 else "subscribe"
    others = f"the heartbeat of {listed(absent, NAMED)}" if absent else "another heartbeat"
    return (
        f"the broker refuses the group's pulls (SUBSCRIPTION_NOT_EXIST), so the group has not pulled it yet: "
        f"{listed(clients, NAMED)} {subscribe} to the topic, but {others} does not list it"
    )


def never_subscribed(topic: str, group: str) -> str:
    if topic == f"{RETRY_TOPIC_PREFIX}{group}":
        return "no event subscribes the group to its retry topic, as its clients do: add one with the tag *"
    if topic == f"{DLQ_TOPIC_PREFIX}{group}":
        return "its consumers failed on it too often: nothing is delivered from a dead-letter queue"
    return "the group never subscribed to the topic"


def not_in_bit_map(expression: CompiledExpression | None, properties: Mapping[str, str], result: Result) -> Reason:
    """The bits of the group were not set when the message was stored."""
    if expression is None or result is Result.TRUE:
        return "the expression matches, but the filter bit map was made without it when the message was stored", ""
    return "the expression did not match when the message was stored", values_of(decisive(expression, properties))


def failed(expression: CompiledExpression, properties: Mapping[str, str]) -> Reason:
    """The evaluation of the expression fails at the broker."""
    (leaf,) = decisive(expression, properties)
    return f"{shortened(leaf.text, LONGEST)} fails", failure_of(leaf)


def not_true(expression: CompiledExpression, properties: Mapping[str, str], result: Result) -> Reason:
    """The expression is FALSE or NULL."""
    return f"the expression is {result.value}", values_of(decisive(expression, properties))


def passed(row: SubscriptionRow, expression: CompiledExpression | None) -> str:
    if expression is not None:
        return "the expression is TRUE"
    return (
        "the tag is subscribed" if row.tags_set and not row.class_filter_mode else "the subscription takes everything"
    )


def leaf_values(part: ExpressionPart) -> str:
    """The values of a leaf's properties, or its error."""
    if part.error:
        return part.error
    return ", ".join(
        f"{name} is missing" if value is None else f"{name} is {quoted(value)}" for name, value in part.values.items()
    )


def failure_of(leaf: ExpressionPart) -> str:
    return f"{leaf.error}; the broker fails the whole expression, which is no match"


def values_of(leaves: Sequence[ExpressionPart]) -> str:
    """The results and values of the leaves that decide."""
    shown = [
        f"{shortened(part.text, LONGEST)} is {part.result.value}, {leaf_values(part) or 'always'}"
        for part in leaves[:NAMED]
    ]
    return "; ".join(shown) + (f"; and {len(leaves) - NAMED:,} more" if len(leaves) > NAMED else "")


def decisive(expression: CompiledExpression, properties: Mapping[str, str]) -> list[ExpressionPart]:
    """The leaves that decide the result: of a failed evaluation, the one that fails."""
    return [part for part in trace(expression, properties).leaves() if part.decides]


def quoted(text: str) -> str:
    """A text in quotes, shortened if it is long."""
    return repr(shortened(text, LONGEST))


class Stage(StrEnum):
    """The filter that decided, or what comes before all filters."""

    SYSTEM_TOPIC = "system topic"
    SUBSCRIPTION = "subscription"
    PULL = "pull"
    TAGS_CODE = "tags code"
    BIT_MAP = "filter bit map"
    EXPRESSION = "expression"
    CLIENT = "client"


@frozen
class Entry:
    """A consume queue entry. ``store_timestamp`` is in ms; ``bit_map`` is None if the broker wrote none."""

    tags_code: int
    bit_map: bytes | None
    store_timestamp: int


@frozen
class BitMapCheck:
    """The check of an entry's filter bit map. ``unset``: the group's ``positions`` that are not set in it.

    ``not_asked``: why the entry passed without a check; None if the bit map decided.
    """

    positions: tuple[int, ...]
    unset: tuple[int, ...]
    not_asked: str | None = None


@frozen
class Decision:
    """What happens to a message, at which filter, and why: a ``headline``, and a ``detail`` that may be empty.

    ``expression`` is what the broker evaluates in stage 2; None for tags, and if all messages pass.
    """

    outcome: Outcome
    stage: Stage
    headline: str
    detail: str = ""
    expression: CompiledExpression | None = None
    bit_map: BitMapCheck | None = None

    @property
    def reason(self) -> str:
        return f"{self.headline}: {self.detail}" if self.detail else self.headline

    def with_leaves(self, leaves: Sequence[ExpressionPart]) -> Decision:
        """The decision on a message that differs only in the values of the leaves that decide, which are ``leaves``."""
        fails = self.outcome is Outcome.EXPRESSION_FAILED
        return replace(self, detail=failure_of(leaves[0]) if fails else values_of(leaves))


def decide(
    row: SubscriptionRow,
    others: Iterable[SubscriptionRow],
    config: BrokerConfig,
    entry: Entry,
    properties: Mapping[str, str],
) -> Decision:
    """Applies a subscription to a message. ``others`` are the group's other subscriptions in force."""
    others = list(others)
    filters = message_filter(row, others, config)
    if filters is None:
        code = refusal(row, config)
        why = refused(code.text if code else "", row.compile_error)
        return Decision(Outcome.NOT_SUBSCRIBED, Stage.PULL, why)
    if not holds(filters.tags, {}, entry.tags_code):
        why = other_tag(properties.get(TAGS_PROPERTY), row.tags_set or ())
        return Decision(Outcome.STOPPED_BY_TAGS_CODE, Stage.TAGS_CODE, why)
    expression = deciding_expression(row, others, config, properties)
    bit_map = check_bit_map(filters, config, entry)
    result, error = (Result.TRUE, None) if expression is None else evaluated(expression, properties)
    if bit_map is not None and bit_map.unset:
        headline, detail = not_in_bit_map(expression, properties, result)
        return Decision(Outcome.STOPPED_BY_BIT_MAP, Stage.BIT_MAP, headline, detail, expression, bit_map)
    if expression is not None and error is not None:
        headline, detail = failed(expression, properties)
        return Decision(Outcome.EXPRESSION_FAILED, Stage.EXPRESSION, headline, detail, expression, bit_map)
    if expression is not None and result is not Result.TRUE:
        headline, detail = not_true(expression, properties, result)
        return Decision(Outcome.STOPPED_BY_EXPRESSION, Stage.EXPRESSION, headline, detail, expression, bit_map)
    if not holds(filters.client_tags, properties):
        why = other_tag_same_hash(properties.get(TAGS_PROPERTY), row.tags_set or ())
        return Decision(Outcome.DROPPED_BY_CLIENT, Stage.CLIENT, why, "", expression, bit_map)
    return Decision(Outcome.DELIVERED, Stage.CLIENT, passed(row, expression), "", expression, bit_map)


def deciding_expression(
    row: SubscriptionRow, others: Iterable[SubscriptionRow], config: BrokerConfig, properties: Mapping[str, str]
) -> CompiledExpression | None:
    """The expression that the broker evaluates on the message; None if it evaluates none."""
    if row.class_filter_mode:
        return None
    if reads_others(row, config):
        return expressions_by_topic(row.consumer_group, others).get(properties.get(RETRY_TOPIC_PROPERTY, ""))
    return None if is_tag_type(row.expression_type) else own_expression(row)


def check_bit_map(filters: MessageFilter, config: BrokerConfig, entry: Entry) -> BitMapCheck | None:
    """The check of the entry's bit map in stage 1; None for subscriptions that use no bit map."""
    if not filters.bit_pos:
        return None
    if entry.store_timestamp <= filters.born_time:
        why = "the message was stored before the filter data was born"
    elif entry.bit_map is None:
        why = "the entry has no filter bit map"
    elif 8 * len(entry.bit_map) != config.bloom_filter.m:
        why = "the entry's filter bit map was made with other parameters"
    else:
        bit_map = entry.bit_map
        unset = tuple(position for position in filters.bit_pos if not is_hit(bit_map, (position,)))
        return BitMapCheck(filters.bit_pos, unset)
    return BitMapCheck(filters.bit_pos, (), why)
