"""Why a message passed the filters of a subscription or not, and the nearest message that would have passed."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from itertools import islice, product

from filtering.bloom_filter import is_hit
from filtering.broker_config import BrokerConfig
from filtering.counted import listed, shortened
from filtering.delivery import Outcome
from filtering.delivery.message_filter import (
    RETRY_TOPIC_PROPERTY,
    TAGS_PROPERTY,
    MessageFilter,
    expressions_by_topic,
    message_filter,
    own_expression,
    reads_others,
)
from filtering.frozen import frozen
from filtering.java import INT_MAX, LONG_MAX, parse_double
from filtering.names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from filtering.predicate import (
    And,
    Constant,
    DoublesCompare,
    IsNumber,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    PropertyLeaf,
    PropertyPairLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
    holds,
    postorder,
    text_holds,
)
from filtering.pulls import refusal
from filtering.sql92 import CompiledExpression, compile, on_one_line
from filtering.sql92.nodes import Minus, Node, NumberLiteral, Parentheses, expression_text, unquoted_texts, walk
from filtering.sql92.parser import LONGEST as LONGEST_EXPRESSION
from filtering.sql92.reference import ExpressionPart, Result, evaluated, trace
from filtering.sql92.tokens import string_literal
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import SCHEDULE_TOPIC, tags_code

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


# The nearest miss: a small change of a message, or of a literal, with which the group would have received it.


# Values of one property that make a leaf of a predicate true or false.


ANY_TEXTS = ("x", "y", "z")
NEAREST_TEXTS = 5
STEPS = (0.01, 1.0)
"""The distances from a number at which other numbers are tried. Prices have cents."""


def values_for(leaf: Predicate, name: str, properties: Mapping[str, str]) -> Iterator[str | None]:
    """Values of the property ``name`` that may make the leaf true or false; None: the property is missing.

    ``properties`` are the message's. No value is empty, because RocketMQ drops properties without a value.
    """
    now = properties.get(name)
    match leaf:
        case TextIn():
            yield from _nearest(now, leaf.texts)
        case TextContains() | TextEndsWith():
            yield from ((now or "") + leaf.text, leaf.text)
        case TextStartsWith():
            yield from (leaf.text + (now or ""), leaf.text)
        case IsTrueText():
            yield from ("true", "false")
        case IsNumber():
            yield "1"
        case NumberIs():
            yield from _numbers(leaf.type, leaf.value)
        case PropertyPairLeaf():
            yield from _beside(leaf, name, properties)
    yield from (now, *ANY_TEXTS, None)


def _nearest(now: str | None, texts: frozenset[str]) -> Iterator[str]:
    """The texts that are most similar to the present value, then the first ones."""
    ordered = sorted(text for text in texts if text)
    if now is not None:
        yield from difflib.get_close_matches(now, ordered, NEAREST_TEXTS, 0.0)
    yield from ordered[:NEAREST_TEXTS]


def _numbers(kind: NumberType, value: int | float) -> Iterator[str]:
    if kind is NumberType.DOUBLE:
        if math.isfinite(value):
            steps = [round(value + sign * step, 2) for step in STEPS for sign in (1, -1)]
            neighbours = [math.nextafter(value, end) for end in (math.inf, -math.inf)]
            yield from (_java(number) for number in (value, *steps, *neighbours))
        else:
            yield from ("NaN", "Infinity", "-Infinity", "0.0")
        return
    greatest = INT_MAX if kind is NumberType.INT else LONG_MAX
    for number in (int(value), int(value) + 1, int(value) - 1):
        if -greatest - 1 <= number <= greatest:
            yield str(number)


def _java(number: float) -> str:
    """The number as a text that Java parses."""
    return repr(number) if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


def _beside(leaf: PropertyPairLeaf, name: str, properties: Mapping[str, str]) -> Iterator[str]:
    """Values near that of the other property."""
    other = properties.get(leaf.right if name == leaf.left else leaf.left)
    if name in properties:
        yield properties[name]
    if other:
        yield other
    if isinstance(leaf, DoublesCompare):
        number = parse_double(other or "")
        yield from _numbers(NumberType.DOUBLE, 1.0 if number is None else number)


# Finds a small change of a message that makes a predicate true: the smallest of those that it tries.


Literal = tuple[Predicate, bool]
"""A leaf, and the value that it must have."""
Way = tuple[Literal, ...]
"""The leaves that must change to make a predicate true."""
WAYS = 8
"""The number of best ways that are kept for each node."""
VALUES = 6
TRIED = 400
"""The number of messages that are tried for one way."""
LEAVES = 200
"""The number of leaves of one property that are used to compare values."""


Change = Mapping[str, str | None]
"""New values of properties; None: the property is removed."""


def changed(properties: Mapping[str, str], change: Change) -> dict[str, str]:
    """The properties of the changed message."""
    return {name: value for name, value in {**properties, **change}.items() if value is not None}


def nearest_change(predicate: Predicate, properties: Mapping[str, str]) -> Change | None:
    """A change that makes the predicate true, with the fewest properties found; None if no change was found."""
    leaves: defaultdict[str, list[Predicate]] = defaultdict(list)
    for node in postorder([predicate]):
        for name in node.properties:
            leaves[name].append(node)
    for way in _ways(predicate, properties):
        names = sorted({name for leaf, _ in way for name in leaf.properties})
        choices = [_values(name, way, leaves[name], properties) for name in names]
        for values in islice(product(*choices), TRIED):
            change = {n: v for n, v in zip(names, values, strict=True) if v != properties.get(n)}
            if holds(predicate, changed(properties, change)):
                return change
    return None


def _ways(root: Predicate, properties: Mapping[str, str]) -> Sequence[Way]:
    """The best ways to make the predicate true, those with the fewest properties first."""
    known: dict[Literal, Sequence[Way]] = {}
    for node in postorder([root]):
        for wanted in (True, False):
            known[node, wanted] = _ways_of_node(node, wanted, known, properties)
    return known[root, True]


def _ways_of_node(
    node: Predicate, wanted: bool, known: Mapping[Literal, Sequence[Way]], properties: Mapping[str, str]
) -> Sequence[Way]:
    match node:
        case Constant():
            return [()] if node.value is wanted else []
        case Not():
            return known[node.operand, not wanted]
        case And() | Or():
            term_ways = [known[term, wanted] for term in node.terms]
            if isinstance(node, And) is wanted:
                return _all_of(term_ways)
            return _best(way for ways in term_ways for way in ways)
        case _:
            return [() if holds(node, properties) is wanted else ((node, wanted),)]


def _all_of(term_ways: Sequence[Sequence[Way]]) -> Sequence[Way]:
    combined: Sequence[Way] = [()]
    for ways in term_ways:
        if ways and not ways[0]:
            continue
        combined = _best(tuple(dict.fromkeys(first + second)) for first in combined for second in ways)
    return combined


def _best(ways: Iterator[Way]) -> Sequence[Way]:
    return sorted(dict.fromkeys(ways), key=_cost)[:WAYS]


def _cost(way: Way) -> tuple[int, int]:
    return len({name for leaf, _ in way for name in leaf.properties}), len(way)


def _values(name: str, way: Way, leaves: Sequence[Predicate], properties: Mapping[str, str]) -> Sequence[str | None]:
    """Values of a property that the way needs, first those that change the fewest other leaves."""
    required = [(leaf, wanted) for leaf, wanted in way if isinstance(leaf, PropertyLeaf) and leaf.name == name]
    sources = [leaf for leaf, _ in way if name in leaf.properties]
    others = [leaf for leaf in leaves[:LEAVES] if isinstance(leaf, PropertyLeaf)]
    before = [_holds(leaf, properties.get(name)) for leaf in others]
    others_changed: dict[str | None, int] = {}
    for leaf in [*sources, *leaves[:LEAVES]]:
        for value in values_for(leaf, name, properties):
            if value not in others_changed and all(_holds(term, value) is wanted for term, wanted in required):
                after = [_holds(other, value) for other in others]
                others_changed[value] = sum(new is not old for new, old in zip(after, before, strict=True))
    return sorted(others_changed, key=lambda value: (others_changed[value], value is None))[:VALUES]


def _holds(leaf: PropertyLeaf, value: str | None) -> bool:
    return value is not None and text_holds(leaf, value)


@frozen
class NearestMiss:
    """Either an ``expression`` that the message would have passed, or ``values`` with which it would have passed.

    ``values`` are properties of the message (None: removed). ``literal`` is the changed part of the expression.
    """

    values: Change = field(default_factory=dict)
    expression: str | None = None
    literal: str | None = None

    def applied(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties of a message that would have been delivered."""
        return changed(properties, self.values)

    @property
    def text(self) -> str:
        """The change as text, such as ``region = 'hangzhou' and without color``."""
        if self.literal is not None:
            return self.literal
        set_to = [f"{name} = {string_literal(value)}" for name, value in self.values.items() if value is not None]
        removed = [f"without {name}" for name, value in self.values.items() if value is None]
        return " and ".join([*set_to, *removed])

    @property
    def would_match(self) -> str:
        """``with region = 'hangzhou'``, or ``without color``: how the message would match."""
        is_removal = self.literal is None and all(value is None for value in self.values.values())
        return self.text if is_removal else f"with {self.text}"


def nearest_miss(
    decision: Decision,
    row: SubscriptionRow,
    others: Iterable[SubscriptionRow],
    config: BrokerConfig,
    properties: Mapping[str, str],
    client_checks: Iterable[Predicate] = (),
) -> NearestMiss | None:
    """The nearest miss; None if none was found, or if the message is delivered.

    ``client_checks``: the checks of tags of the group's clients, if they differ. The message must pass all of them,
    because it is not known which client reads the queue.
    """
    expression = deciding_expression(row, others, config, properties)
    miss = _nearest_miss(decision, row, expression, properties)
    if miss is None or not all(holds(check, miss.applied(properties)) for check in client_checks):
        return None
    return miss


def _nearest_miss(
    decision: Decision, row: SubscriptionRow, expression: CompiledExpression | None, properties: Mapping[str, str]
) -> NearestMiss | None:
    if decision.outcome in (Outcome.STOPPED_BY_TAGS_CODE, Outcome.DROPPED_BY_CLIENT):
        return _other_tag(row, properties)
    stopped = (Outcome.STOPPED_BY_BIT_MAP, Outcome.STOPPED_BY_EXPRESSION, Outcome.EXPRESSION_FAILED)
    if decision.outcome not in stopped or expression is None:
        return None
    result, _ = evaluated(expression, properties)
    if result is Result.TRUE:
        return None
    if result is Result.ERROR and (decimal_miss := _decimal_literal(expression, properties)) is not None:
        return decimal_miss
    if (quoted := _quoted_text(expression, properties)) is not None:
        return quoted
    change = nearest_change(expression.predicate, properties)
    compared = {unquoted_text.name for unquoted_text in unquoted_texts(expression.syntax_tree)}
    if change is None or any(value is None and name in compared for name, value in change.items()):
        return None  # Two missing properties are equal, which nobody wants.
    return NearestMiss(change)


def _other_tag(row: SubscriptionRow, properties: Mapping[str, str]) -> NearestMiss | None:
    """A subscribed tag. None in the schedule topic, which has delivery times instead of tags codes."""
    if not row.tags_set or row.topic == SCHEDULE_TOPIC:
        return None
    subscribed = TextIn(TAGS_PROPERTY, frozenset(row.tags_set))
    tag = next((tag for tag in values_for(subscribed, TAGS_PROPERTY, properties) if tag in row.tags_set), None)
    return NearestMiss({TAGS_PROPERTY: tag}) if tag is not None and tags_code(tag) in (row.code_set or ()) else None


def _decimal_literal(expression: CompiledExpression, properties: Mapping[str, str]) -> NearestMiss | None:
    """The expression with one integer written as a decimal, which can be compared with 12.50, too.

    The integer is one of the comparison that fails. None also if the expression would be too long to compile.
    """
    failed = next(part.node for part in trace(expression, properties).leaves() if part.error is not None)
    for literal in walk(failed):
        if not isinstance(literal, NumberLiteral) or literal.value.type is NumberType.DOUBLE or not literal.value.value:
            continue
        decimal: dict[Node, str] = {literal: literal.image.rstrip("lL") + ".0"}
        text = expression_text(expression.syntax_tree, decimal)
        if _passes(text, expression, properties):
            return NearestMiss(expression=text, literal=expression_text(_comparison(failed, literal), decimal))
    return None


def _quoted_text(expression: CompiledExpression, properties: Mapping[str, str]) -> NearestMiss | None:
    """The expression with quotes around a text without them, which is the value of the property beside it."""
    for each in unquoted_texts(expression.syntax_tree):
        text = each.text
        corrected: dict[Node, str] = {text: each.correction}
        if text.name not in properties and properties.get(each.name) == text.name:
            whole = expression_text(expression.syntax_tree, corrected)
            if _passes(whole, expression, properties):
                compared = each.correction
                if not each.is_alone:
                    compared = expression_text(_comparison(expression.syntax_tree, text), corrected)
                return NearestMiss(expression=whole, literal=compared)
    return None


def _passes(text: str, expression: CompiledExpression, properties: Mapping[str, str]) -> bool:
    """Whether a text instead of the expression lets the message pass. One that is too long does not compile."""
    if len(text) > LONGEST_EXPRESSION:
        return False
    return evaluated(compile(text, expression.version), properties)[0] is Result.TRUE


def _comparison(tree: Node, operand: Node) -> Node:
    """The comparison of an operand, which may have minuses and parentheses."""
    parent_of = {child: node for node in walk(tree) for child in node.children}
    node = parent_of[operand]
    while isinstance(node, Minus | Parentheses):
        node = parent_of[node]
    return node
