"""Turns a syntax tree into two-valued predicates for the outcomes TRUE, FALSE and ERROR.

The outcomes exclude each other. If none of the predicates is true, the outcome is NULL. Most expressions have no
ERROR that matters, and their predicates look like hand-written ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from filtering.predicate import (
    FALSE,
    TRUE,
    Comparison,
    IsPresent,
    Predicate,
    PropertyLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
)
from filtering.predicate_value import text_holds
from filtering.sql92.lowering import chains, comparisons, equality
from filtering.sql92.lowering.evaluation_outcome import EvaluationOutcome
from filtering.sql92.lowering.operands import Nothing, Operand, Value, is_not_null, operand, operand_fails
from filtering.sql92.normal_form.form import Form
from filtering.sql92.normal_form.normal_form import present_but_not
from filtering.sql92.syntax import nodes
from filtering.sql92.syntax.nodes import Node, Property, Search, inside
from filtering.sql92.syntax.walk import Steps, run

_Part: TypeAlias = Callable[[EvaluationOutcome], Steps[Predicate]]


class Lowering:
    """Lowers one syntax tree. Results are cached by node and outcome."""

    def __init__(self, root: Node, form: Form) -> None:
        self._root = root
        self._form = form
        self._known: dict[tuple[Node, EvaluationOutcome], Predicate] = {}

    def predicate(self, outcome: EvaluationOutcome) -> Predicate:
        """True exactly if the broker's evaluation of the expression has this outcome."""
        return run(self._lower(self._root, outcome))

    def _lower(self, node: Node, outcome: EvaluationOutcome) -> Steps[Predicate]:
        leaf = _LEAVES.get(type(node))
        if leaf is not None:
            return leaf(node, outcome)
        known = self._known.get((node, outcome))
        if known is None:
            known = self._known[node, outcome] = yield _RULES[type(node)](self, node, outcome)
        return known

    def _parentheses(self, node: nodes.Parentheses, outcome: EvaluationOutcome) -> Steps[Predicate]:
        return (yield from self._lower(inside(node), outcome))

    def _logic(self, node: nodes.And | nodes.Or, outcome: EvaluationOutcome) -> Steps[Predicate]:
        deciding = EvaluationOutcome.TRUE if isinstance(node, nodes.Or) else EvaluationOutcome.FALSE
        return (yield from self._chain(deciding, [partial(self._lower, part) for part in _parts(node)], outcome))

    def _chain(self, deciding: EvaluationOutcome, parts: list[_Part], outcome: EvaluationOutcome) -> Steps[Predicate]:
        """A chain of parts. The first part whose outcome is ``deciding`` decides the chain."""
        if outcome is deciding.negated:
            return self._form.all_of((yield from _lower_all(parts, outcome)))
        if outcome is deciding:
            fails = yield from _lower_all(parts[:-1], EvaluationOutcome.ERROR)
            decides = yield from _lower_all(parts, deciding)
            return chains.decided(self._form, decides, [*fails, FALSE])
        fails = yield from _lower_all(parts, EvaluationOutcome.ERROR)
        if {FALSE, fails[0]}.issuperset(fails):
            return fails[0]
        last = max(fails.index(failing) for failing in {*fails} - {FALSE})
        decides = yield from _lower_all(parts[:last], deciding)
        return chains.failed(self._form, [*decides, FALSE], fails[: last + 1])

    def _not(self, node: nodes.Not, outcome: EvaluationOutcome) -> Steps[Predicate]:
        return (yield from self._lower(node.operand, outcome.negated))

    def _search(self, node: nodes.TextSearch, outcome: EvaluationOutcome) -> Steps[Predicate]:
        searched = operand(node.operand)
        failing = (yield from operand_fails(self._lower, searched)) if node.text else FALSE
        if outcome is EvaluationOutcome.ERROR:
            return failing
        true = self._search_is_true(node, searched)
        return true if outcome is EvaluationOutcome.TRUE else self._form.negation(self._form.any_of([true, failing]))

    def _search_is_true(self, node: nodes.TextSearch, searched: Operand) -> Predicate:
        """True if a search is TRUE: never for an empty search text, or an operand that is not a text."""
        if node.text and isinstance(searched, Property):
            leaf = _SEARCHES[node.search](searched.name, node.text)
            return present_but_not(leaf) if node.negated else leaf
        if node.text and isinstance(searched, Value) and isinstance(searched.value, str):
            found = text_holds(_SEARCHES[node.search]("", node.text), searched.value)
            return FALSE if found is node.negated else TRUE
        return FALSE

    def _ordering(self, node: nodes.Ordering, outcome: EvaluationOutcome) -> Steps[Predicate]:
        return (yield from self._ordered(operand(node.left), node.comparison, operand(node.right), outcome))

    def _between(self, node: nodes.Between, outcome: EvaluationOutcome) -> Steps[Predicate]:
        value, low, high = map(operand, node.children)
        above = partial(self._ordered, value, Comparison.GREATER_OR_EQUAL, low)
        below = partial(self._ordered, value, Comparison.LESS_OR_EQUAL, high)
        return (yield from self._chain(EvaluationOutcome.FALSE, [above, below], outcome))

    def _ordered(
        self, left: Operand, comparison: Comparison, right: Operand, outcome: EvaluationOutcome
    ) -> Steps[Predicate]:
        """If the left side is NULL, the outcome is NULL, and the right side is not evaluated."""
        if isinstance(left, (Property, Value)) and isinstance(right, (Property, Value)):
            return comparisons.ordered(self._form, left, comparison, right, outcome)
        if outcome is not EvaluationOutcome.ERROR:
            return FALSE
        left_fails = yield from operand_fails(self._lower, left)
        right_fails = yield from operand_fails(self._lower, right)
        left_not_null = yield from is_not_null(self._form, self._lower, left)
        return self._form.any_of([left_fails, self._form.all_of([left_not_null, right_fails])])

    def _equal(self, node: nodes.Equal, outcome: EvaluationOutcome) -> Steps[Predicate]:
        left, right = operand(node.left), operand(node.right)
        return (yield from equality.equal(self._form, self._lower, left, right, outcome))

    def _not_equal(self, node: nodes.NotEqual, outcome: EvaluationOutcome) -> Steps[Predicate]:
        left, right = operand(node.left), operand(node.right)
        return (yield from equality.equal(self._form, self._lower, left, right, outcome.negated))

    def _is_null(self, node: nodes.IsNull, outcome: EvaluationOutcome) -> Steps[Predicate]:
        return (yield from equality.equal(self._form, self._lower, operand(node.operand), Nothing(), outcome))


def _parts(node: nodes.And | nodes.Or) -> list[Node]:
    """The operands of nested ANDs, or ORs, from left to right: both are associative, errors included."""
    kind, parts = type(node), []
    stack: list[Node] = [node]
    while stack:
        part = inside(stack.pop())
        if isinstance(part, kind):
            stack += [part.right, part.left]
        else:
            parts.append(part)
    return parts


def _lower_all(parts: Iterable[_Part], outcome: EvaluationOutcome) -> Steps[list[Predicate]]:
    predicates = []
    for part in parts:
        predicates.append((yield from part(outcome)))
    return predicates


def _property(node: Property, outcome: EvaluationOutcome) -> Predicate:
    """A property used as a boolean is FALSE if it is present."""
    return IsPresent(node.name) if outcome is EvaluationOutcome.FALSE else FALSE


def _boolean(node: nodes.BooleanLiteral, outcome: EvaluationOutcome) -> Predicate:
    return TRUE if outcome is (EvaluationOutcome.TRUE if node.value else EvaluationOutcome.FALSE) else FALSE


def _null(node: nodes.NullLiteral, outcome: EvaluationOutcome) -> Predicate:
    return FALSE


def _in(node: nodes.In, outcome: EvaluationOutcome) -> Predicate:
    if outcome is EvaluationOutcome.ERROR:
        return FALSE
    listed = TextIn(node.name, frozenset(node.texts))
    return listed if outcome is EvaluationOutcome.TRUE else present_but_not(listed)


_SEARCHES: dict[Search, Callable[[str, str], PropertyLeaf]] = {
    Search.CONTAINS: TextContains,
    Search.STARTS_WITH: TextStartsWith,
    Search.ENDS_WITH: TextEndsWith,
}
_LEAVES: dict[type[Node], Callable[[Any, EvaluationOutcome], Predicate]] = {
    Property: _property,
    nodes.BooleanLiteral: _boolean,
    nodes.NullLiteral: _null,
    nodes.In: _in,
}
_RULES: dict[type[Node], Callable[[Lowering, Any, EvaluationOutcome], Steps[Predicate]]] = {
    nodes.Parentheses: Lowering._parentheses,
    nodes.And: Lowering._logic,
    nodes.Or: Lowering._logic,
    nodes.Not: Lowering._not,
    nodes.TextSearch: Lowering._search,
    nodes.Equal: Lowering._equal,
    nodes.NotEqual: Lowering._not_equal,
    nodes.IsNull: Lowering._is_null,
    nodes.Between: Lowering._between,
    nodes.Ordering: Lowering._ordering,
}
