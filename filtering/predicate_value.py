"""Evaluates one predicate on one message: the reference for both executors, and the arithmetic of the normal form."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from filtering.java.numbers import double_order, parse_double, parse_int, parse_long
from filtering.predicate import (
    TRUE_TEXTS,
    And,
    Comparison,
    Constant,
    DoublesCompare,
    IsNumber,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    PropertyLeaf,
    PropertyPairLeaf,
    TagsCodeIn,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
    postorder,
)

COMPARE: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def holds(predicate: Predicate, properties: Mapping[str, str], tags_code: int | None = None) -> bool:
    """Whether the predicate is true for a message with these properties. ``tags_code``: of its entry, if it has one."""
    values: dict[Predicate, bool] = {}
    for node in postorder([predicate]):
        match node:
            case Constant():
                value = node.value
            case Not():
                value = not values[node.operand]
            case And():
                value = all(values[term] for term in node.terms)
            case Or():
                value = any(values[term] for term in node.terms)
            case PropertyLeaf():
                value = node.name in properties and text_holds(node, properties[node.name])
            case PropertyPairLeaf():
                value = (
                    node.left in properties
                    and node.right in properties
                    and _texts_hold(node, properties[node.left], properties[node.right])
                )
            case TagsCodeIn():
                value = tags_code is not None and _to_int(tags_code) in node.codes
            case _:
                raise TypeError(f"{type(node).__name__} is not a predicate that can be evaluated")
        values[node] = value
    return values[predicate]


def text_holds(leaf: PropertyLeaf, text: str) -> bool:
    """Whether a leaf is true for a property with this text."""
    match leaf:
        case IsPresent():
            return True
        case TextIn():
            return text in leaf.texts
        case TextContains():
            return leaf.text in text
        case TextStartsWith():
            return text.startswith(leaf.text)
        case TextEndsWith():
            return text.endswith(leaf.text)
        case IsTrueText():
            return text in TRUE_TEXTS
        case IsNumber():
            return parse(leaf.type, text) is not None
        case NumberIs():
            number = parse(leaf.type, text)
            return number is not None and COMPARE[leaf.comparison](
                order(leaf.type, number), order(leaf.type, leaf.value)
            )
        case _:
            raise TypeError(f"{type(leaf).__name__} is not a leaf about one property")


def all_hold(text: str | None, positive: Sequence[PropertyLeaf], negative: Iterable[PropertyLeaf]) -> bool:
    """Whether all of ``positive`` are true and all of ``negative`` false for a property's text (None: missing)."""
    if text is None:
        return not positive
    return all(text_holds(leaf, text) for leaf in positive) and not any(text_holds(leaf, text) for leaf in negative)


def parse(type_: NumberType, text: str) -> int | float | None:
    """The text as a Java number, or None if it is not one."""
    match type_:
        case NumberType.INT:
            return parse_int(text)
        case NumberType.LONG:
            return parse_long(text)
        case NumberType.DOUBLE:
            return parse_double(text)


def order(type_: NumberType, number: int | float) -> int:
    """A key that orders numbers of the type as Java's compareTo."""
    return double_order(number) if type_ is NumberType.DOUBLE else int(number)


def _texts_hold(leaf: PropertyPairLeaf, left: str, right: str) -> bool:
    match leaf:
        case TextsEqual():
            return left == right
        case DoublesCompare():
            numbers = parse_double(left), parse_double(right)
            if numbers[0] is None or numbers[1] is None:
                return False
            return COMPARE[leaf.comparison](double_order(numbers[0]), double_order(numbers[1]))
        case _:
            raise TypeError(f"{type(leaf).__name__} is not a leaf about two properties")


def _to_int(tags_code: int) -> int:
    """Java's (int) of a long."""
    return (tags_code + 2**31) % 2**32 - 2**31
