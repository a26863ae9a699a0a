"""A predicate as Spark SQL text, two-valued and never NULL.

Inside, NULL stands for false as well: conjunctions and disjunctions keep that, and negation stands
at leaves only. What is shared in a predicate and would be repeated over and over in text is bound to a
variable, as the element of an array of one.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    PropertyLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
    postorder,
)
from filtering.sql92 import spark_leaves
from filtering.sql92.spark_leaves import Column

_REPETITION = 4
_SMALL = 200


class _Text(NamedTuple):
    sql: str
    nullable: bool = False
    kind: type[Predicate] | None = None
    """And, Or: what the text must be protected from by parentheses."""


def spark_sql(predicate: Predicate, column: Column) -> str:
    """The predicate over columns; ``column`` gives a property's SQL text."""
    nodes = list(postorder([predicate]))
    bound = _repeated(predicate, nodes)
    variables = {node: f"v{number}" for number, node in enumerate(bound)}
    texts: dict[Predicate, _Text] = {}
    definitions = []
    for node in nodes:
        texts[node] = _text(node, texts, column)
        if node in variables:
            definitions.append((variables[node], _closed(node, texts, column)))
            texts[node] = _Text(variables[node])
    sql = _closed(predicate, texts, column)
    for variable, definition in reversed(definitions):
        sql = f"exists(array({definition}), {variable} -> {sql})"
    return sql


def _repeated(root: Predicate, nodes: list[Predicate]) -> list[Predicate]:
    """Shared nodes to bind, if the text would otherwise be much longer than the predicate is big."""
    uses: dict[Predicate, int] = {}
    for node in nodes:
        for operand in node.operands:
            uses[operand] = uses.get(operand, 0) + 1
    size: dict[Predicate, int] = {}
    for node in nodes:
        size[node] = 1 + sum(size[operand] for operand in node.operands)
    if size[root] <= _REPETITION * len(nodes) + _SMALL:
        return []
    bound = []
    for node in nodes:
        size[node] = 1 + sum(size[operand] for operand in node.operands)
        if uses.get(node, 0) > 1 and size[node] > _SMALL:
            size[node] = 1
            bound.append(node)
    return bound


def _text(node: Predicate, texts: dict[Predicate, _Text], column: Column) -> _Text:
    match node:
        case Constant():
            return _Text("true" if node.value else "false")
        case Not(IsPresent() as leaf):
            return _Text(f"{column(leaf.name)} IS NULL")
        case Not():
            return _Text(f"NOT {_parenthesised(_two_valued(texts[node.operand]))}")
        case And():
            return _joined(And, _conjuncts(node.terms, texts, column))
        case Or():
            return _joined(Or, _disjuncts(node.terms, texts, column))
        case _:
            sql, nullable = spark_leaves.leaf(node, column)
            return _Text(sql, nullable, And if isinstance(node, (IsNumber, NumberIs)) else None)


def _closed(node: Predicate, texts: dict[Predicate, _Text], column: Column) -> str:
    """The text without NULL; conjuncts that have none stay apart, so that Spark can push them down."""
    if not isinstance(node, And):
        return _two_valued(texts[node]).sql
    conjuncts = _conjuncts(node.terms, texts, column)
    closed = [text for text in conjuncts if not text.nullable]
    nullable = [text for text in conjuncts if text.nullable]
    if nullable:
        closed.append(_two_valued(_joined(And, nullable)))
    return _joined(And, closed).sql


def _two_valued(text: _Text) -> _Text:
    return _Text(f"coalesce({text.sql}, false)") if text.nullable else text


def _parenthesised(text: _Text) -> str:
    return f"({text.sql})"


def _joined(kind: type[And | Or], texts: list[_Text]) -> _Text:
    if len(texts) == 1:
        return texts[0]
    word = " AND " if kind is And else " OR "
    sql = word.join(f"({text.sql})" if text.kind not in (None, kind) else text.sql for text in texts)
    return _Text(sql, any(text.nullable for text in texts), kind)


def _conjuncts(terms: Iterable[Predicate], texts: dict[Predicate, _Text], column: Column) -> list[_Text]:
    """Terms of a conjunction, those about one number together, and without needless questions for presence."""
    terms = list(terms)
    ranges: dict[tuple[str, NumberType], list[NumberIs]] = {}
    asked = {term for term in terms if isinstance(term, (IsPresent, IsNumber))}
    answered = set()
    for term in terms:
        if isinstance(term, NumberIs):
            ranges.setdefault((term.name, term.type), []).append(term)
        elif isinstance(term, Not) and isinstance(term.operand, PropertyLeaf):
            answered.add(_presence(term.operand))
    result = []
    for term in terms:
        if isinstance(term, NumberIs):
            leaves = ranges.pop((term.name, term.type), None)
            if leaves:
                result.append(_Text(spark_leaves.compared(leaves, column), True, And))
        elif isinstance(term, Not) and isinstance(term.operand, PropertyLeaf) and _presence(term.operand) in asked:
            result.append(_denied(term.operand, column))
        elif not (term in asked and term in answered):
            result.append(texts[term])
    return result


def _presence(leaf: PropertyLeaf) -> Predicate | None:
    """The question that the text of ``_denied`` answers along the way, by being NULL."""
    match leaf:
        case TextIn() | TextContains() | TextStartsWith() | TextEndsWith() | IsTrueText():
            return IsPresent(leaf.name)
        case NumberIs(comparison=Comparison.EQUAL):
            return IsNumber(leaf.name, leaf.type)
        case _:
            return None


def _denied(leaf: PropertyLeaf, column: Column) -> _Text:
    """That a leaf is false of a property that is there, or NULL where it isn't."""
    match leaf:
        case NumberIs():
            return _Text(spark_leaves.different(leaf, column), True, And)
        case TextIn():
            return _Text(spark_leaves.not_in(leaf, column), True)
        case IsTrueText():
            return _Text(f"lower({column(leaf.name)}) <> 'true'", True)
        case _:
            return _Text(f"NOT {spark_leaves.leaf(leaf, column)[0]}", True)


def _disjuncts(terms: Iterable[Predicate], texts: dict[Predicate, _Text], column: Column) -> list[_Text]:
    """Terms of a disjunction, equalities of one number together."""
    points: dict[tuple[str, NumberType], list[NumberIs]] = {}
    rest = []
    for term in terms:
        if isinstance(term, NumberIs) and term.comparison is Comparison.EQUAL:
            points.setdefault((term.name, term.type), []).append(term)
        else:
            rest.append(texts[term])
    listed = [
        _Text(
            spark_leaves.one_of(leaves, column) if len(leaves) > 1 else spark_leaves.compared(leaves, column), True, And
        )
        for leaves in points.values()
    ]
    return listed + rest
