"""Spark SQL text of a single leaf. No session setting changes its meaning.

Casts are explicit and ``try_``, so that ANSI mode does not matter. Literals contain no character whose meaning
depends on a parser setting. Some texts are numbers in Spark but not in Java, or the other way round:
:func:`number` and :func:`guard` handle them.
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
"""Returns the SQL text of a property's value, or of NULL, for the property's name."""

_TYPES = {NumberType.INT: "INT", NumberType.LONG: "BIGINT", NumberType.DOUBLE: "DOUBLE"}
_SUFFIXES = {NumberType.INT: "", NumberType.LONG: "L", NumberType.DOUBLE: "D"}
# Digits of all scripts are between U+0660 and U+ABF9, or wide ones, and Java's integers take them all. The byte order
# mark must not be among these characters: Spark's CSV parser skips it at the beginning of its input.
_INTEGER_CHARACTERS = "'^[0-9+٠-꯹０-９-]+$'"
_OTHER_THAN_INTEGER = "'[^0-9+٠-꯹０-９-]'"
# Spark also takes inf, infinity and nan in any case; no other number has an n.
_JAVA_DOUBLE = "'^[^nN]*$|Infinity|NaN'"
_SPECIAL = re.compile(r"['\\$\x00-\x1f\x7f]+")


def literal(text: str) -> str:
    """A string literal. Characters that are special in some parser setting are written as code points."""
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
    """The text as a number, or NULL. The value is Java's only if :func:`guard` is true, too."""
    cast = f"try_cast({text} AS {_TYPES[type_]})"
    if type_ is NumberType.DOUBLE:
        return cast
    digits = f"regexp_substr({text}, {_INTEGER_CHARACTERS})"
    return f"coalesce({cast}, from_csv({digits}, 'v {_TYPES[type_]}').v)"


def guard(type_: NumberType, text: str) -> str:
    """The condition that Java parses the number, too."""
    if type_ is NumberType.DOUBLE:
        return f"{text} RLIKE {_JAVA_DOUBLE}"
    return f"NOT {text} RLIKE {_OTHER_THAN_INTEGER}"


def in_range(leaves: list[NumberIs], column: Column) -> str:
    """All comparisons of one property as one type; NULL or false if one of them is not true.

    A finite double needs no guard: Spark differs from Java only in the spelling of infinities and NaN.
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
    """Any of the equalities of one property as one type; NULL or false if none of them is true."""
    if len(leaves) == 1:
        return in_range(leaves, column)
    type_, text = leaves[0].type, column(leaves[0].name)
    listed = f"{number(type_, text)} IN ({_number_literals(leaves)})"
    return listed if type_ is NumberType.DOUBLE else f"{listed} AND {guard(type_, text)}"


def none_of(leaves: list[NumberIs], column: Column) -> str:
    """The property is a number of the type and equals none of the values; otherwise NULL or false."""
    type_, text = leaves[0].type, column(leaves[0].name)
    values = _number_literals(leaves)
    others = f"<> {values}" if len(leaves) == 1 else f"NOT IN ({values})"
    return f"{number(type_, text)} {others} AND {guard(type_, text)}"


def not_in(leaf: TextIn, column: Column) -> str:
    """The property has a text that is not listed; NULL if it is missing."""
    if len(leaf.texts) == 1:
        return f"{column(leaf.name)} <> {literal(*leaf.texts)}"
    return f"{column(leaf.name)} NOT IN ({', '.join(map(literal, sorted(leaf.texts)))})"


def leaf(node: Predicate, column: Column) -> tuple[str, bool]:
    """The SQL text of a leaf, and whether it may be NULL instead of false."""
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
            raise TypeError(f"{type(node).__name__} is not a leaf about properties")


def _doubles_compare(node: DoublesCompare, left: str, right: str) -> str:
    """In Spark, -0.0 = 0.0; in Java, -0.0 < 0.0."""
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
