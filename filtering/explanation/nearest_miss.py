"""The nearest miss: a small change of a message, or of a literal, with which the group would have received it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from filtering.broker_config import BrokerConfig
from filtering.delivery.message_filter import TAGS_PROPERTY
from filtering.explanation.candidates import values_for
from filtering.explanation.decision import Decision, Outcome, deciding_expression
from filtering.explanation.expression_text import expression_text
from filtering.explanation.nearest_change import Change, changed, nearest_change
from filtering.explanation.trace import Result, evaluated, trace
from filtering.predicate import NumberType, Predicate, TextIn
from filtering.predicate_value import holds
from filtering.sql92 import CompiledExpression, compile
from filtering.sql92.syntax.nodes import Minus, Node, NumberLiteral, Parentheses, unquoted_texts, walk
from filtering.sql92.syntax.parser import LONGEST
from filtering.sql92.syntax.tokens import string_literal
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import SCHEDULE_TOPIC, tags_code


@dataclass(frozen=True)
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
    found = _nearest_miss(decision, row, expression, properties)
    if found is None or not all(holds(check, found.applied(properties)) for check in client_checks):
        return None
    return found


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
    compared = {each.name for each in unquoted_texts(expression.syntax_tree)}
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
