"""Runs the filters of one topic on some of its messages, and counts matches and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.delivery.message_filter import TAGS_PROPERTY, MessageFilter
from filtering.findings.failures import failure_causes, remedy
from filtering.matcher import Matcher, packed_bits
from filtering.matcher.column import Column
from filtering.matcher.packed_bits import Words
from filtering.predicate import And, Not, Predicate
from filtering.sql92 import CompiledExpression, EvaluationError
from filtering.sql92.syntax.nodes import named_properties, unquoted_texts

VALUES = 1_000
"""The number of messages whose values are used to explain why an expression fails on them."""


@dataclass(frozen=True)
class FilterOnMessages:
    """The results of a filter, as numbers of messages.

    ``matched`` messages are delivered, on ``failed`` messages the expression fails, ``collided`` messages pass only
    because their tag has the hash of another tag. ``remedies`` explain the failures, and ``colliding_tags`` are the
    tags of the messages that collided (an empty text: no tag), both with the most frequent first. ``unquoted``: texts
    without quotes that are values of the property beside them.
    """

    matched: int
    failed: int
    collided: int
    remedies: Sequence[str] = ()
    colliding_tags: Sequence[str] = ()
    unquoted: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class TopicMessages:
    """``count`` messages of one topic, with their properties by name (all that filters read) and their tags codes."""

    count: int
    properties: Mapping[str, Column]
    tags_code: pa.Int64Array

    def match(self, predicates: Sequence[Predicate]) -> list[Words]:
        """The messages for which each predicate is true, as packed bits. ``predicates`` must be distinct."""
        if not predicates:
            return []
        return list(Matcher(predicates).match_columns(self.properties, self.count, self.tags_code).bits)

    def has_value(self, name: str, text: str) -> bool:
        """Whether the property has this value in some message."""
        column = self.properties.get(name)
        return column is not None and bool(pc.any(pc.equal(column.text_of_each(), text)).as_py())

    def texts(self, name: str, bits: Words) -> list[str]:
        """The values of a property in the first VALUES messages whose bits are set; empty if it is missing."""
        column = self.properties.get(name)
        rows = np.flatnonzero(packed_bits.unpack(bits, self.count))[:VALUES]
        if column is None:
            return [""] * len(rows)
        return [text or "" for text in column.text_of_each().take(pa.array(rows)).to_pylist()]


def filters_on_messages(
    filters: Sequence[MessageFilter], expressions: Sequence[CompiledExpression | None], messages: TopicMessages
) -> list[FilterOnMessages]:
    """The results of each filter. ``expressions``: the SQL92 expression of each filter, None for tags."""
    predicates = [_predicates(message_filter) for message_filter in filters]
    distinct = list(dict.fromkeys(predicate for group in predicates for predicate in group))
    bits = dict(zip(distinct, messages.match(distinct), strict=True))
    counts = {predicate: int(np.bitwise_count(row).sum()) for predicate, row in bits.items()}
    results = []
    for (matched, failed, collided), expression in zip(predicates, expressions, strict=True):
        remedies: list[str] = []
        tags: list[str] = []
        if counts[failed] and expression is not None:
            remedies = _remedies(expression, messages) or _first_error(expression, messages, bits[failed])
        if counts[collided]:
            tags = [tag for tag, _ in Counter(messages.texts(TAGS_PROPERTY, bits[collided])).most_common()]
        compared = unquoted_texts(expression.syntax_tree) if expression is not None else ()
        unquoted = [each.text.name for each in compared if messages.has_value(each.name, each.text.name)]
        results.append(FilterOnMessages(counts[matched], counts[failed], counts[collided], remedies, tags, unquoted))
    return results


def _predicates(message_filter: MessageFilter) -> tuple[Predicate, Predicate, Predicate]:
    """Predicates for messages that match, that fail, and that collide."""
    tags, client_tags = message_filter.tags, message_filter.client_tags
    return And((tags, message_filter.expression, client_tags)), message_filter.failure, And((tags, Not(client_tags)))


def _first_error(expression: CompiledExpression, messages: TopicMessages, failed: Words) -> list[str]:
    """Why the expression fails on the first of the ``failed`` messages."""
    named = named_properties(expression.syntax_tree)
    texts = {name: column.text_of_each() for name, column in messages.properties.items() if name in named}
    row = int(np.flatnonzero(packed_bits.unpack(failed, messages.count))[0])
    try:
        expression.evaluate({name: text for name in texts if (text := texts[name][row].as_py()) is not None})
    except EvaluationError as error:
        return [str(error)]
    return []


def _remedies(expression: CompiledExpression, messages: TopicMessages) -> list[str]:
    causes = failure_causes(expression)
    bits = messages.match([cause.predicate for cause in causes])
    counted = sorted(
        ((int(np.bitwise_count(row).sum()), cause, row) for cause, row in zip(causes, bits, strict=True)),
        key=lambda counted_cause: -counted_cause[0],
    )
    return [
        remedy(expression, cause, messages.texts(cause.name, row), 2 * count > messages.count)
        for count, cause, row in counted
        if count
    ]
