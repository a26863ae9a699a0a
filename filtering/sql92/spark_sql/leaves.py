"""Spark SQL text of one question about properties, that no session setting changes.

Casts are explicit and ``try_``, so ANSI mode doesn't matter; literals hold no character that any
parser setting reads in another way. Where Spark reads text as a number and Java doesn't, or the
other way round, is what the two guards are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from filtering.predicate import (
    Comparison,
    DoublesCompare,
    IsNumber,
    IsPresent,
    IsTrueText,
    NumberIs,
    NumberType,
    Predicate,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
)

Column = Callable[[str], str]
"""A property's name to the SQL text of its value, or of NULL."""

_TYPES = {NumberType.INT: "INT", NumberType.LONG: "BIGINT", NumberType.DOUBLE: "DOUBLE"}
_SUFFIXES = {NumberType.INT: "", NumberType.LONG: "L", NumberType.DOUBLE: "D"}
# Digits of all scripts are between U+0660 and U+FF19, and Java's integers take them all.
_INTEGER_CHARACTERS = "'^[0-9+٠-９-]+$'"
_OTHER_THAN_INTEGER = "'[^0-9+٠-９-]'"
# Spark also takes inf, infinity and nan in any case; no other number has an n.
_JAVA_DOUBLE = "'^[^nN]*$|Infinity|NaN'"
_SPECIAL = re.compile(r"['\\$\x00-\x1f\x7f]+")


def literal(text: str) -> str:
    """A string literal; what is special to some setting of the parser stands as a code point."""
    parts: list[str] = []
    end = 0
    for match in _SPECIAL.finditer(text):
        parts += [f"'{text[end : match.start()]}'"] if match.start() > end else []
        parts += [f"chr({ord(character)})" for character in match[0]]
        end = match.end()
    if end < len(text) or not parts:
        parts.append(f"'{text[end:]}'")
    return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"


def number(type_: NumberType, text: str) -> str:
    """The text as a number, or NULL, if the guard holds as well."""
    cast = f"try_cast({text} AS {_TYPES[type_]})"
    if type_ is NumberType.DOUBLE:
        return cast
    digits = f"regexp_substr({text}, {_INTEGER_CHARACTERS})"
    return f"coalesce({cast}, from_csv({digits}, 'v {_TYPES[type_]}').v)"


def guard(type_: NumberType, text: str) -> str:
    """That Java reads the number as well."""
    if type_ is NumberType.DOUBLE:
        return f"{text} RLIKE {_JAVA_DOUBLE}"
    return f"NOT {text} RLIKE {_OTHER_THAN_INTEGER}"


def in_range(leaves: list[NumberIs], column: Column) -> str:
    """All of some comparisons of one property as one type; NULL or false where one is not true.

    A finite double needs no guard: only infinities and NaN are spelled in Spark's own ways.
    """
    type_, text = leaves[0].type, column(leaves[0].name)
    value = number(type_, text)
    bounds = {leaf.comparison: _number_literal(type_, leaf.value) for leaf in leaves}
    if bounds.keys() == {Comparison.GREATER_OR_EQUAL, Comparison.LESS_OR_EQUAL}:
        low, high = bounds[Comparison.GREATER_OR_EQUAL], bounds[Comparison.LESS_OR_EQUAL]
        terms = [f"{value} BETWEEN {low} AND {high}"]
    else:
        terms = [f"{value} {comparison.value} {bound}" for comparison, bound in bounds.items()]
    if type_ is not NumberType.DOUBLE:
        terms.append(guard(type_, text))
    elif bounds.keys() <= {Comparison.LESS, Comparison.LESS_OR_EQUAL}:
        terms.append(f"({value} > double('-Infinity') OR {guard(type_, text)})")
    elif bounds.keys() <= {Comparison.GREATER, Comparison.GREATER_OR_EQUAL}:
        terms.append(f"({value} < double('Infinity') OR {guard(type_, text)})")
    return " AND ".join(terms)


def one_of(leaves: list[NumberIs], column: Column) -> str:
    """Any of some equalities of one property as one type; NULL or false where none is true."""
    if len(leaves) == 1:
        return in_range(leaves, column)
    type_, text = leaves[0].type, column(leaves[0].name)
    listed = f"{number(type_, text)} IN ({_number_literals(leaves)})"
    return listed if type_ is NumberType.DOUBLE else f"{listed} AND {guard(type_, text)}"


def none_of(leaves: list[NumberIs], column: Column) -> str:
    """A number of the type, but none of some; NULL or false where it isn't."""
    type_, text = leaves[0].type, column(leaves[0].name)
    values = _number_literals(leaves)
    others = f"<> {values}" if len(leaves) == 1 else f"NOT IN ({values})"
    return f"{number(type_, text)} {others} AND {guard(type_, text)}"


def not_in(leaf: TextIn, column: Column) -> str:
    """Another text; NULL without the property."""
    if len(leaf.texts) == 1:
        return f"{column(leaf.name)} <> {literal(*leaf.texts)}"
    return f"{column(leaf.name)} NOT IN ({', '.join(map(literal, sorted(leaf.texts)))})"


def leaf(node: Predicate, column: Column) -> tuple[str, bool]:
    """The text of a leaf, and whether it may be NULL where it should be false."""
    match node:
        case IsPresent():
            return f"{column(node.name)} IS NOT NULL", False
        case TextIn():
            if len(node.texts) == 1:
                return f"{column(node.name)} <=> {literal(*node.texts)}", False
            return f"{column(node.name)} IN ({', '.join(map(literal, sorted(node.texts)))})", True
        case TextContains():
            return f"contains({column(node.name)}, {literal(node.text)})", True
        case TextStartsWith():
            return f"startswith({column(node.name)}, {literal(node.text)})", True
        case TextEndsWith():
            return f"endswith({column(node.name)}, {literal(node.text)})", True
        case IsTrueText():
            return f"lower({column(node.name)}) <=> 'true'", False
        case IsNumber():
            text = column(node.name)
            return f"{number(node.type, text)} IS NOT NULL AND {guard(node.type, text)}", False
        case NumberIs():
            return in_range([node], column), True
        case TextsEqual():
            return f"{column(node.left)} = {column(node.right)}", True
        case DoublesCompare():
            return _doubles_compare(node, column(node.left), column(node.right)), True
        case _:
            raise TypeError(f"{type(node).__name__} is no question about properties")


def _doubles_compare(node: DoublesCompare, left: str, right: str) -> str:
    """Spark has -0.0 = 0.0, Java -0.0 < 0.0."""
    numbers = number(NumberType.DOUBLE, left), number(NumberType.DOUBLE, right)
    comparison = f"{numbers[0]} {node.comparison.value} {numbers[1]}"
    ascending = node.comparison in (Comparison.LESS, Comparison.GREATER_OR_EQUAL)
    zeros = ("'-0.0'", "'0.0'") if ascending else ("'0.0'", "'-0.0'")
    ordered_zeros = " AND ".join(
        f"CAST({value} AS STRING) = {zero}" for value, zero in zip(numbers, zeros, strict=True)
    )
    if node.comparison in (Comparison.LESS, Comparison.GREATER):
        comparison = f"({comparison} OR ({ordered_zeros}))"
    else:
        comparison = f"{comparison} AND NOT ({ordered_zeros})"
    return f"{comparison} AND {guard(NumberType.DOUBLE, left)} AND {guard(NumberType.DOUBLE, right)}"


def _number_literal(type_: NumberType, value: int | float) -> str:
    return f"{value!r}{_SUFFIXES[type_]}"


def _number_literals(leaves: list[NumberIs]) -> str:
    return ", ".join(_number_literal(leaf.type, leaf.value) for leaf in leaves)
