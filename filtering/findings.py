"""Findings: subscriptions that cannot mean what was written, and filters with unwanted effects on real messages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import BrokerConfig, why_property_filter_is_off
from filtering.counted import listed, shortened
from filtering.delivery.message_filter import TAGS_PROPERTY, MessageFilter, delivers
from filtering.frozen import frozen
from filtering.matcher import Matcher, packed_bits
from filtering.matcher.column import Column
from filtering.matcher.packed_bits import Words
from filtering.predicate import (
    FALSE,
    TRUE,
    And,
    IsNumber,
    IsPresent,
    Not,
    NumberType,
    Predicate,
    holds,
    parse,
    postorder,
)
from filtering.pulls import ResponseCode, refused
from filtering.sql92 import CompiledExpression, EvaluationError, on_one_line
from filtering.sql92.linter import PLACEHOLDER
from filtering.sql92.nodes import (
    Between,
    Equal,
    Minus,
    Node,
    NotEqual,
    NumberLiteral,
    Ordering,
    Property,
    inside,
    named_properties,
    unquoted_texts,
    walk,
)
from filtering.sql92.parser import looks_like_sql92
from filtering.sql92.reference import evaluated
from filtering.sql92.tokens import string_literal
from filtering.subscription_data import SUB_ALL, is_tag_type
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow

# A finding: something suspicious about a subscription.


ERROR, WARN, INFO = SEVERITIES = ("error", "warn", "info")
FAILING_SHARE = 0.1
"""A share of messages. An expression that fails on more of them is an error."""


@frozen
class Finding:
    """``code`` is the kind of finding. ``text`` explains it in one line and says what to write instead.

    It affects ``messages`` of the ``of`` messages of the topic; ``of`` is 0 if no messages were checked.
    """

    severity: str
    consumer_group: str
    topic: str
    code: str
    text: str
    messages: int = 0
    of: int = 0

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by severity, then by topic, group and code, else in their order, without repetition."""
    return sorted(
        dict.fromkeys(findings),
        key=lambda finding: (SEVERITIES.index(finding.severity), finding.topic, finding.consumer_group, finding.code),
    )


# Findings from subscriptions alone, without messages.


NAMED = 3
"""The number of groups that a line names; other groups are counted."""
_SHOWN = 60
_OTHER_SEPARATORS = re.compile(r"[|,;｜¦，；、]|\bor\b", re.IGNORECASE)
_AND = re.compile(r"&&|^[\w.-]+ +and +[\w.-]+$", re.IGNORECASE)
_QUOTES = frozenset("'\"`‘’“”")
ABOUT_TAGS = frozenset({"one-tag", "sql-as-tag", "negated-tag", "wildcard-tag", "quoted-tag", "placeholder"})
"""Findings of tags that were meant as they are if messages have them."""
_INFO = frozenset({"integer-literal", "reversed-not-between"})


def static_findings(in_force: Iterable[SubscriptionRow]) -> list[Finding]:
    """The findings of subscriptions that are in force at one instant, in the order of the subscriptions."""
    rows = list(in_force)
    return [*(finding for row in rows for finding in own_findings(row)), *_equivalent(rows)]


def refused_findings(
    rows: Iterable[SubscriptionRow], broker: BrokerConfig, misread: Iterable[str] = ()
) -> Iterator[Finding]:
    """Subscriptions that compile, and whose every pull the broker refuses.

    ``misread``: the texts on settings in broker.conf that mean something else to the broker than they seem to.
    """
    off = why_property_filter_is_off(misread)
    how = f": {off}" if off is not None else "; set it to true in broker.conf"
    for row, code in refused(rows, broker):
        if row.compile_error is None:
            advice = f"{how}, and restart the broker" * (code is ResponseCode.SYSTEM_ERROR)
            text = f"the broker refuses every pull with {code.text}{advice}"
            yield Finding(ERROR, *row.key, "refused-pulls", text)


def own_findings(row: SubscriptionRow) -> Iterator[Finding]:
    def finding(severity: str, code: str, text: str) -> Finding:
        return Finding(severity, *row.key, code, text)

    if row.compile_error is not None:
        yield finding(ERROR, "does-not-compile", on_one_line(row.compile_error))
    elif is_tag_type(row.expression_type):
        if delivers(row) is FALSE:
            yield finding(ERROR, "never-matches", "the list has no tag: no message matches; write tags, or * for all")
        elif row.expression != SUB_ALL and SUB_ALL in (row.tags_set or ()):
            yield finding(WARN, "literal-star", "* among tags is the tag named *, not every tag; write * alone for all")
        for tag in sorted(row.tags_set or ()):
            if (problem := _problem_of_tag(tag)) is not None:
                yield finding(WARN, *problem)
    elif row.compiled.expression is not None:
        for severity, code, text in expression_findings(row.compiled.expression):
            yield finding(severity, code, text)


def _problem_of_tag(tag: str) -> tuple[str, str] | None:
    """The code and the text of what is wrong with a tag, which is compared as it is; None if nothing seems wrong."""
    shown = _shown(tag)
    if PLACEHOLDER.search(tag):
        return "placeholder", f"{shown} is a placeholder that nothing replaced: it is the tag itself; write the value"
    if _AND.search(tag):
        return "one-tag", f"{shown} is one tag here; a message has one tag, and || separates tags"
    if _OTHER_SEPARATORS.search(tag) and not _is_comparison(tag):
        return "one-tag", f"{shown} is one tag here; || separates tags"
    if tag.startswith("!") or (tag.lower().startswith("not ") and not _is_comparison(tag)):
        return "negated-tag", f"{shown} is the tag with this name: tags cannot be excluded; SQL92 can, TAGS <> 'x'"
    if looks_like_sql92(tag):
        return (
            "sql-as-tag",
            f"{shown} is a tag here, not SQL92: only messages with exactly this tag match; "
            "subscribe with MessageSelector.bySql, or write sql: in a YAML list",
        )
    if "*" in tag and tag != SUB_ALL:
        return "wildcard-tag", f"{shown} is the tag with this name: tags have no wildcards; SQL92 has STARTSWITH"
    if tag[:1] in _QUOTES or tag[-1:] in _QUOTES:
        return "quoted-tag", f"{shown} is a tag with quotes in it; write tags without quotes"
    return None


def _is_comparison(tag: str) -> bool:
    return looks_like_sql92(tag) and any(operator in tag for operator in "=<>")


def _shown(tag: str) -> str:
    """A tag on one line, cut."""
    text = " ".join(tag.split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def expression_findings(expression: CompiledExpression) -> Iterator[tuple[str, str, str]]:
    """The severity, the code and the text of each finding of an expression."""
    for finding in expression.findings:
        severity = ERROR if finding.delivers_nothing else INFO if finding.code in _INFO else WARN
        yield severity, finding.code, f"{finding.sentence} {finding.suggestion}"


def _equivalent(rows: Iterable[SubscriptionRow]) -> Iterator[Finding]:
    """Groups that get the same messages. Groups that get all messages of a topic, or none, are not listed."""
    by_predicate: defaultdict[tuple[str, Predicate], list[SubscriptionRow]] = defaultdict(list)
    for row in rows:
        predicate = delivers(row)
        if predicate not in (None, TRUE, FALSE):
            by_predicate[row.topic, predicate].append(row)
    for equivalent in by_predicate.values():
        first, *others = equivalent
        if others:
            named = listed([row.consumer_group for row in others], NAMED, "group")
            texts = {" ".join((row.expression or "").split()) for row in equivalent}
            written = "" if len(texts) == 1 else ", though their filters are written differently"
            yield Finding(INFO, *first.key, "equivalent-groups", f"gets the same messages as {named}{written}")


# Why expressions fail on messages: which property is not a number, and what to write instead.


_COMPARISONS = (Equal, NotEqual, Ordering, Between)
_LONGEST = 24
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")


@frozen
class Cause:
    """If ``predicate`` is true, the expression fails because ``name`` is present but not a number of the type."""

    name: str
    type: NumberType
    predicate: Predicate


def failure_causes(expression: CompiledExpression) -> list[Cause]:
    fails = expression.error_predicate
    numbers = {(node.name, node.type): None for node in postorder([fails]) if isinstance(node, IsNumber)}
    return [Cause(name, type_, And((fails, IsPresent(name), Not(IsNumber(name, type_))))) for name, type_ in numbers]


def remedy(expression: CompiledExpression, cause: Cause, texts: Sequence[str], mostly: bool) -> str:
    """What is wrong with the property if the expression fails, and what to write instead.

    ``texts``: values of the property in messages on which the expression fails, at least one. ``mostly``: it fails on
    most messages of the topic.
    """
    name = cause.name
    decimals = [text for text in texts if parse(NumberType.DOUBLE, text) is not None]
    if cause.type is NumberType.DOUBLE or 2 * len(decimals) < len(texts):
        example = next((text for text in texts if text not in decimals and text), "")
        problem = f"{name} is not a number there, such as {_quoted(example)}" if example else f"{name} is empty there"
        instead = (
            f"compare it with a text, {name} = {_quoted(example)}"
            if mostly and example
            else "let producers send numbers"
        )
        return f"{problem}; {instead}"
    literals = _integers(expression, name)
    numbers = [f"{literal}.0" if int(literal) else "0.01 or so instead of 0" for literal in literals]
    instead = f"write {' and '.join(numbers)}" if literals else "compare it with a decimal"
    if all(parse(NumberType.LONG, text) is not None for text in decimals):
        return f"{name} is greater than an int there, such as {_quoted(decimals[0])}; {instead}"
    decimal = next((text for text in decimals if _DECIMAL.fullmatch(text)), None)
    if decimal is not None:
        return f"{name} is a decimal there, such as {_quoted(decimal)}; {instead}"
    irregular = next(text for text in decimals if parse(NumberType.LONG, text) is None)
    return f"{name} is not a plain integer there, such as {_quoted(irregular)}; {instead}"


def _integers(expression: CompiledExpression, name: str) -> list[str]:
    """The integers with which a property is compared, without suffixes, in the order of the text."""
    integers: dict[str, None] = {}
    for node in walk(expression.syntax_tree):
        if isinstance(node, _COMPARISONS):
            sides = [inside(side) for side in node.children]
            if any(isinstance(side, Property) and side.name == name for side in sides):
                integers |= dict.fromkeys(digits for side in sides if (digits := _integer(side)) is not None)
    return list(integers)


def _integer(node: Node) -> str | None:
    sign, literal = ("-", inside(node.operand)) if isinstance(node, Minus) else ("", node)
    if not isinstance(literal, NumberLiteral):
        return None
    digits = literal.image.rstrip("lL")
    return sign + digits if digits.isdigit() else None


def _quoted(text: str) -> str:
    return string_literal(shortened(text, _LONGEST))


# Runs the filters of one topic on some of its messages, and counts matches and failures.


VALUES = 1_000
"""The number of messages whose values are used to explain why an expression fails on them."""


@frozen
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


@frozen(eq=False)
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


# Expectations: messages that a filter must deliver, or must not deliver, as a YAML list.
#
#     - pass: {region: hangzhou, price: "60.0"}
#     - stop: {region: beijing}
#       group: cg_expensive_orders
#
# With ``group``, the expectation applies to the filters of this group only, else to every filter that is tried.


_KEYS = frozenset({"pass", "stop", "group"})


@frozen
class Expectation:
    """A message with these properties passes, or it does not. ``number`` (from 1) is its position in the list."""

    number: int
    passes: bool
    properties: Mapping[str, str]
    consumer_group: str | None = None

    @property
    def message(self) -> str:
        """The number and the properties, for a line of text."""
        shown = ", ".join(f"{name}: {text!r}" for name, text in self.properties.items())
        return f"message {self.number} ({shown})"


def expectations(document: object) -> list[Expectation]:
    """The expectations of a YAML document. Raises ValueError."""
    if not isinstance(document, list) or not document:
        raise ValueError("not a list; begin each message with - pass: or - stop:, and its properties")
    return [_expectation(number, entry) for number, entry in enumerate(document, start=1)]


def unmet(expectations: Iterable[Expectation], row: SubscriptionRow) -> Iterator[str]:
    """A line for each expectation that a subscription does not meet. One that does not compile gives no lines."""
    predicate = delivers(row)
    for expected in expectations:
        if predicate is None or expected.consumer_group not in (None, row.consumer_group):
            continue
        if holds(predicate, expected.properties) is not expected.passes:
            must = "must pass and does not" if expected.passes else "must not pass and does"
            why = f"the filter is {_outcome(row, expected.properties)}"
            yield f"{row.consumer_group}: {expected.message} {must}: {why}"


def unmet_without_subscription(expectations: Iterable[Expectation], groups: Collection[str]) -> Iterator[str]:
    """A line for each message that must pass for a group that is not one of ``groups``, which have subscriptions."""
    for expected in expectations:
        group = expected.consumer_group
        if expected.passes and group is not None and group not in groups:
            yield f"{group}: {expected.message} must pass and does not: the group has no subscription"


def _expectation(number: int, entry: object) -> Expectation:
    if not isinstance(entry, dict) or not entry.keys() <= _KEYS or ("pass" in entry) == ("stop" in entry):
        raise ValueError(f"entry {number}: give either pass: or stop:; the only other field is group:")
    properties = entry.get("pass", entry.get("stop")) or {}
    if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
        raise ValueError(f"entry {number}: the properties must be names and texts, such as {{region: hangzhou}}")
    group = entry.get("group")
    if not isinstance(group, str | None):
        raise ValueError(f"entry {number}: group: must be a text")
    return Expectation(number, "pass" in entry, properties, group)


def _outcome(row: SubscriptionRow, properties: Mapping[str, str]) -> str:
    if row.compiled.expression is None:
        tag = properties.get("TAGS")
        return f"{row.expression!r}, and {'it has no tag' if tag is None else f'its tag is {tag!r}'}"
    result, error = evaluated(row.compiled.expression, properties)
    return result.value if error is None else f"in error: {error}"
