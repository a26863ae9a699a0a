"""Applies the filters of one subscription to one message, in the broker's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from filtering.bloom_filter import is_hit
from filtering.broker_config import BrokerConfig
from filtering.delivery.message_filter import (
    RETRY_TOPIC_PROPERTY,
    TAGS_PROPERTY,
    MessageFilter,
    expressions_by_topic,
    message_filter,
    own_expression,
    reads_others,
)
from filtering.explanation import reasons
from filtering.explanation.trace import Result, evaluated
from filtering.predicate_value import holds
from filtering.pulls.pull import refusal
from filtering.sql92 import CompiledExpression
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow


class Outcome(StrEnum):
    """The result of filtering a message for a group."""

    DELIVERED = "DELIVERED"
    DROPPED_BY_CLIENT = "DROPPED_BY_CLIENT"
    DROPPED_BY_HOOK = "DROPPED_BY_HOOK"
    STOPPED_BY_TAGS_CODE = "STOPPED_BY_TAGS_CODE"
    STOPPED_BY_BIT_MAP = "STOPPED_BY_BIT_MAP"
    STOPPED_BY_EXPRESSION = "STOPPED_BY_EXPRESSION"
    EXPRESSION_FAILED = "EXPRESSION_FAILED"
    PENDING = "PENDING"
    WAITING = "WAITING"
    NEVER_STORED = "NEVER_STORED"
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"


class Stage(StrEnum):
    """The filter that decided, or what comes before all filters."""

    SYSTEM_TOPIC = "system topic"
    SUBSCRIPTION = "subscription"
    PULL = "pull"
    TAGS_CODE = "tags code"
    BIT_MAP = "filter bit map"
    EXPRESSION = "expression"
    CLIENT = "client"


@dataclass(frozen=True)
class Entry:
    """A consume queue entry. ``store_timestamp`` is in ms; ``bit_map`` is None if the broker wrote none."""

    tags_code: int
    bit_map: bytes | None
    store_timestamp: int


@dataclass(frozen=True)
class BitMapCheck:
    """The check of an entry's filter bit map. ``unset``: the group's ``positions`` that are not set in it.

    ``not_asked``: why the entry passed without a check; None if the bit map decided.
    """

    positions: tuple[int, ...]
    unset: tuple[int, ...]
    not_asked: str | None = None


@dataclass(frozen=True)
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
        why = reasons.refused(code.text if code else "", row.compile_error)
        return Decision(Outcome.NOT_SUBSCRIBED, Stage.PULL, why)
    if not holds(filters.tags, {}, entry.tags_code):
        why = reasons.other_tag(properties.get(TAGS_PROPERTY), row.tags_set or ())
        return Decision(Outcome.STOPPED_BY_TAGS_CODE, Stage.TAGS_CODE, why)
    expression = deciding_expression(row, others, config, properties)
    bit_map = check_bit_map(filters, config, entry)
    result, error = (Result.TRUE, None) if expression is None else evaluated(expression, properties)
    if bit_map is not None and bit_map.unset:
        headline, detail = reasons.not_in_bit_map(expression, properties, result)
        return Decision(Outcome.STOPPED_BY_BIT_MAP, Stage.BIT_MAP, headline, detail, expression, bit_map)
    if expression is not None and error is not None:
        headline, detail = reasons.failed(expression, properties, error)
        return Decision(Outcome.EXPRESSION_FAILED, Stage.EXPRESSION, headline, detail, expression, bit_map)
    if expression is not None and result is not Result.TRUE:
        headline, detail = reasons.not_true(expression, properties, result)
        return Decision(Outcome.STOPPED_BY_EXPRESSION, Stage.EXPRESSION, headline, detail, expression, bit_map)
    if not holds(filters.client_tags, properties):
        why = reasons.other_tag_same_hash(properties.get(TAGS_PROPERTY), row.tags_set or ())
        return Decision(Outcome.DROPPED_BY_CLIENT, Stage.CLIENT, why, "", expression, bit_map)
    return Decision(Outcome.DELIVERED, Stage.CLIENT, reasons.passed(row, expression), "", expression, bit_map)


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
