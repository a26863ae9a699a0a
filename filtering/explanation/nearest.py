"""The nearest miss: a small change of a message, or of a literal, with which the group would have received it."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice, product

from filtering.broker_config import BrokerConfig
from filtering.delivery.block_schema import Outcome
from filtering.delivery.message_filter import TAGS_PROPERTY
from filtering.explanation.decision import Decision, deciding_expression
from filtering.explanation.trace import Result, evaluated, expression_text, trace
from filtering.frozen import frozen
from filtering.java import INT_MAX, LONG_MAX, parse_double
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
from filtering.sql92 import CompiledExpression, compile
from filtering.sql92.nodes import Minus, Node, NumberLiteral, Parentheses, unquoted_texts, walk
from filtering.sql92.parser import LONGEST
from filtering.sql92.tokens import string_literal
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import SCHEDULE_TOPIC, tags_code

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
        if len(text) <= LONGEST and evaluated(compile(text, expression.version), properties)[0] is Result.TRUE:
            return NearestMiss(expression=text, literal=expression_text(_comparison(failed, literal), decimal))
    return None


def _quoted_text(expression: CompiledExpression, properties: Mapping[str, str]) -> NearestMiss | None:
    """The expression with quotes around a text without them, which is the value of the property beside it."""
    for each in unquoted_texts(expression.syntax_tree):
        text = each.text
        corrected: dict[Node, str] = {text: each.correction}
        if text.name not in properties and properties.get(each.name) == text.name:
            whole = expression_text(expression.syntax_tree, corrected)
            if len(whole) <= LONGEST and evaluated(compile(whole, expression.version), properties)[0] is Result.TRUE:
                compared = each.correction
                if not each.is_alone:
                    compared = expression_text(_comparison(expression.syntax_tree, text), corrected)
                return NearestMiss(expression=whole, literal=compared)
    return None


def _comparison(tree: Node, operand: Node) -> Node:
    """The comparison of an operand, which may have minuses and parentheses."""
    parent_of = {child: node for node in walk(tree) for child in node.children}
    node = parent_of[operand]
    while isinstance(node, Minus | Parentheses):
        node = parent_of[node]
    return node
