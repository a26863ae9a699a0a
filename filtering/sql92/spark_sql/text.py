"""Turns the nodes of a predicate into Spark SQL text.

Inside the text, NULL means false, too: conjunctions and disjunctions preserve that, and negation occurs at leaves
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from filtering.predicate import (
    And,
    Comparison,
    Constant,
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
    TextStartsWith,
)
from filtering.sql92.spark_sql import leaves
from filtering.sql92.spark_sql.leaves import Column
from filtering.terms import without_not

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
                sql, nullable = leaves.leaf(node, self._column)
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
            *self._numbers(ranges, leaves.in_range),
            *self._numbers(excluded, leaves.none_of),
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
        return [*texts, *self._numbers(points, leaves.one_of)]

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
            return Text(leaves.not_in(leaf, column), True)
        case IsTrueText():
            return Text(f"lower({column(leaf.name)}) <> 'true'", True)
        case _:
            return Text(f"NOT {leaves.leaf(leaf, column)[0]}", True)
