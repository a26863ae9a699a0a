"""Turns a predicate into Spark SQL text that is true or false, never NULL.

A node that a predicate uses twice appears twice in the text. If the text gets too long, such nodes are bound to
variables: ``exists(array(struct(… AS v0, …)), s0 -> …)`` is SQL's way to write ``let``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from filtering.predicate import (
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
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
    postorder,
    without_not,
)

# Spark SQL text of a single leaf. No session setting changes its meaning.
#
# Casts are explicit and ``try_``, so that ANSI mode does not matter. Literals contain no character whose meaning
# depends on a parser setting. Some texts are numbers in Spark but not in Java, or the other way round: :func:`number`
# and :func:`guard` handle them.


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


def leaf_sql(node: Predicate, column: Column) -> tuple[str, bool]:
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


# Turns the nodes of a predicate into Spark SQL text.
#
# Inside the text, NULL means false, too: conjunctions and disjunctions preserve that, and negation occurs at leaves
# only.


_Number = tuple[str, NumberType]


class Text(NamedTuple):
    """Spark SQL text. It is NULL instead of false for some messages if it is ``nullable``."""

    sql: str
    nullable: bool = False
    kind: type[Predicate] | None = None
    """The outermost operator, And or Or: inside the other one, the text needs parentheses."""

    def two_valued(self) -> Text:
        """The text that is never NULL."""
        return Text(f"coalesce({self.sql}, false)") if self.nullable else self


class SparkText:
    """The texts of nodes, from the leaves up. ``together``: terms about one number are one text, as one would write."""

    def __init__(self, column: Column, together: bool) -> None:
        self._column = column
        self._together = together
        self._texts: dict[Predicate, Text] = {}

    def write(self, node: Predicate) -> Text:
        """Writes the text of a node. The texts of its operands must have been written before."""
        self._texts[node] = text = self._text(node)
        return text

    def name(self, node: Predicate, variable: str) -> None:
        """Let a variable stand for the node in other texts."""
        self._texts[node] = Text(variable)

    def forget(self, nodes: Iterable[Predicate]) -> None:
        """Drop the texts of nodes. Texts of nested nodes that are kept take memory with the square of their depth."""
        for node in nodes:
            self._texts.pop(node, None)

    def two_valued(self, node: Predicate) -> str:
        """The text, never NULL. Conjuncts that are never NULL stay separate, so that Spark can push them down."""
        if not isinstance(node, And):
            return self._texts[node].two_valued().sql
        conjuncts = self._conjuncts(node.terms)
        parts = [text for text in conjuncts if not text.nullable]
        nullable = [text for text in conjuncts if text.nullable]
        if nullable:
            parts.append(_joined(And, nullable).two_valued())
        return _joined(And, parts).sql

    def _text(self, node: Predicate) -> Text:
        match node:
            case Constant():
                return Text("true" if node.value else "false")
            case Not(IsPresent() as leaf):
                return Text(f"{self._column(leaf.name)} IS NULL")
            case Not():
                return Text(f"NOT ({self._texts[node.operand].two_valued().sql})")
            case And():
                return _joined(And, self._conjuncts(node.terms))
            case Or():
                return _joined(Or, self._disjuncts(node.terms))
            case _:
                sql, nullable = leaf_sql(node, self._column)
                return Text(sql, nullable, And if isinstance(node, (IsNumber, NumberIs)) else None)

    def _conjuncts(self, terms: Iterable[Predicate]) -> list[Text]:
        """Terms of a conjunction, without checks for presence: other terms are NULL if the property is missing."""
        if not self._together:
            return [self._texts[term] for term in terms]
        checked = {term for term in terms if isinstance(term, (IsPresent, IsNumber))}
        ranges: dict[_Number, list[NumberIs]] = {}
        excluded: dict[_Number, list[NumberIs]] = {}
        texts = []
        implied = set()
        for term in terms:
            leaf = without_not(term)
            presence = _presence(leaf) if isinstance(term, Not) else None
            if isinstance(term, NumberIs):
                ranges.setdefault((term.name, term.type), []).append(term)
            elif presence is None or presence not in checked:
                texts.append((term, self._texts[term]))
            else:
                implied.add(presence)
                if isinstance(leaf, NumberIs):
                    excluded.setdefault((leaf.name, leaf.type), []).append(leaf)
                else:
                    texts.append((term, _negated(leaf, self._column)))
        return [
            *(text for term, text in texts if term not in implied),
            *self._numbers(ranges, in_range),
            *self._numbers(excluded, none_of),
        ]

    def _disjuncts(self, terms: Iterable[Predicate]) -> list[Text]:
        if not self._together:
            return [self._texts[term] for term in terms]
        points: dict[_Number, list[NumberIs]] = {}
        texts = []
        for term in terms:
            if isinstance(term, NumberIs) and term.comparison is Comparison.EQUAL:
                points.setdefault((term.name, term.type), []).append(term)
            else:
                texts.append(self._texts[term])
        return [*texts, *self._numbers(points, one_of)]

    def _numbers(
        self, numbers: dict[_Number, list[NumberIs]], write: Callable[[list[NumberIs], Column], str]
    ) -> list[Text]:
        return [Text(write(same_number, self._column), True, And) for same_number in numbers.values()]


def _joined(kind: type[And | Or], texts: list[Text]) -> Text:
    if len(texts) == 1:
        return texts[0]
    word = " AND " if kind is And else " OR "
    sql = word.join(f"({text.sql})" if text.kind not in (None, kind) else text.sql for text in texts)
    return Text(sql, any(text.nullable for text in texts), kind)


def _presence(leaf: Predicate) -> Predicate | None:
    """The check for presence that the text of the negated leaf includes."""
    match leaf:
        case TextIn() | TextContains() | TextStartsWith() | TextEndsWith() | IsTrueText():
            return IsPresent(leaf.name)
        case NumberIs(comparison=Comparison.EQUAL):
            return IsNumber(leaf.name, leaf.type)
        case _:
            return None


def _negated(leaf: Predicate, column: Column) -> Text:
    """The negated leaf of a property that is present; NULL if the property is missing."""
    match leaf:
        case TextIn():
            return Text(not_in(leaf, column), True)
        case IsTrueText():
            return Text(f"lower({column(leaf.name)}) <> 'true'", True)
        case _:
            return Text(f"NOT {leaf_sql(leaf, column)[0]}", True)


_REPETITION = 4
"""A text gets variables if it is more than so many times as long as its distinct nodes, and _SHORT longer."""
_BRACKETS = 10
"""The approximate length of an operator's brackets, and of a variable's name."""
_SHORT = 2000
"""A repeated operation of up to this length gets no variable."""


def spark_sql(predicate: Predicate, column: Column) -> str:
    """The SQL text of the predicate. ``column`` returns the SQL text of a property."""
    nodes = list(postorder([predicate]))
    uses = _uses(nodes)
    is_tree = max(uses.values(), default=1) == 1
    stage_of = {} if is_tree else _stages(nodes, _lengths(nodes, column))
    text = SparkText(column, together=not stage_of)
    stages: list[list[str]] = []
    for node in nodes:
        text.write(node)
        stage = stage_of.get(node)
        if stage is not None:
            stages += [[] for _ in range(stage + 1 - len(stages))]
            variable = f"v{len(stages[stage])}"
            stages[stage].append(f"{text.two_valued(node)} AS {variable}")
            text.name(node, f"s{stage}.{variable}")
        if node is not predicate:
            uses.subtract(node.operands)
            text.forget(operand for operand in node.operands if not uses[operand])
    sql = text.two_valued(predicate)
    for stage in reversed(range(len(stages))):
        sql = f"exists(array(struct({', '.join(stages[stage])})), s{stage} -> {sql})"
    return sql


def _lengths(nodes: list[Predicate], column: Column) -> dict[Predicate, int]:
    """The approximate number of characters that each node adds to those of its operands."""
    text = SparkText(column, together=False)
    return {node: _BRACKETS if node.operands else len(text.write(node).sql) for node in nodes}


def _uses(nodes: list[Predicate]) -> Counter[Predicate]:
    return Counter(operand for node in nodes for operand in node.operands)


def _stages(nodes: list[Predicate], own: dict[Predicate, int]) -> dict[Predicate, int]:
    """The nodes to bind, with their stage: after the stages of the nodes they use. Empty if the text is short."""
    length: dict[Predicate, int] = {}
    for node in nodes:
        length[node] = own[node] + sum(length[operand] for operand in node.operands)
    if length[nodes[-1]] <= _REPETITION * sum(own.values()) + _SHORT:
        return {}
    uses = _uses(nodes)
    ready: dict[Predicate, int] = {}
    bound: dict[Predicate, int] = {}
    for node in nodes:
        length[node] = own[node] + sum(length[operand] for operand in node.operands)
        ready[node] = max((ready[operand] for operand in node.operands), default=0)
        if uses[node] > 1 and length[node] > (_SHORT if node.operands else _BRACKETS):
            bound[node] = ready[node]
            ready[node] += 1
            length[node] = _BRACKETS
    return bound
