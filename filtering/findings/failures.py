"""Why expressions fail on messages: which property is not a number, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from filtering.counted import shortened
from filtering.predicate import And, IsNumber, IsPresent, Not, NumberType, Predicate, postorder
from filtering.predicate_value import parse
from filtering.sql92 import CompiledExpression
from filtering.sql92.syntax.nodes import (
    Between,
    Equal,
    Minus,
    Node,
    NotEqual,
    NumberLiteral,
    Ordering,
    Property,
    inside,
    walk,
)
from filtering.sql92.syntax.tokens import string_literal

_COMPARISONS = (Equal, NotEqual, Ordering, Between)
_LONGEST = 24
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")


@dataclass(frozen=True)
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
