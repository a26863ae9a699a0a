"""From the syntax tree to two-valued predicates: where the outcome is TRUE, FALSE or ERROR.

The outcomes exclude each other, and NULL is what is left. Most expressions have no ERROR that
matters, and become what one would write by hand.

Each node's rule is a generator that yields the outcomes of other nodes that it needs and returns a
predicate, so that no depth of nesting exhausts the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeAlias

from sqlglot import exp

from filtering.predicate import (
    FALSE,
    TRUE,
    Comparison,
    IsPresent,
    Not,
    Predicate,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
)
from filtering.sql92.lowering import chains, comparisons, equality, nulls
from filtering.sql92.lowering.operands import Operand, Property, Value, operand
from filtering.sql92.lowering.outcome import Lowered, Outcome
from filtering.sql92.normal_form.normal_form import NormalForm
from filtering.sql92.reference import SEARCHES
from filtering.sql92.syntax.nodes import NotFound, inside

_Part: TypeAlias = Callable[[Outcome], Lowered]

_COMPARISONS: dict[type[exp.Expr], Comparison] = {
    exp.GT: Comparison.GREATER,
    exp.GTE: Comparison.GREATER_OR_EQUAL,
    exp.LT: Comparison.LESS,
    exp.LTE: Comparison.LESS_OR_EQUAL,
}
_LEAVES: dict[type[exp.Expr], Callable[[str, str], Predicate]] = {
    exp.Contains: TextContains,
    exp.StartsWith: TextStartsWith,
    exp.EndsWith: TextEndsWith,
}


class Lowering:
    """One syntax tree; what it has lowered before, it remembers."""

    def __init__(self, root: exp.Expr) -> None:
        self._root = root
        self._form = NormalForm()
        self._known: dict[tuple[int, Outcome], Predicate] = {}

    def predicate(self, outcome: Outcome) -> Predicate:
        """True exactly where the broker's evaluation of the expression comes to ``outcome``."""
        known = self._known.get((id(self._root), outcome))
        if known is not None:
            return known
        asked = [(self._root, outcome)]
        stack = [self._rule(*asked[0])]
        answer: Predicate | None = None
        while True:
            try:
                wanted = stack[-1].send(answer)  # type: ignore[arg-type]
            except StopIteration as done:
                stack.pop()
                node, of = asked.pop()
                lowered: Predicate = done.value
                answer = self._known[id(node), of] = lowered
                if not stack:
                    return lowered
            else:
                answer = self._known.get((id(wanted[0]), wanted[1]))
                if answer is None:
                    asked.append(wanted)
                    stack.append(self._rule(*wanted))

    def _rule(self, node: exp.Expr, outcome: Outcome) -> Lowered:
        return _RULES[type(node)](self, node, outcome)

    def _paren(self, node: exp.Paren, outcome: Outcome) -> Lowered:
        return (yield node.this, outcome)

    def _logic(self, node: exp.And | exp.Or, outcome: Outcome) -> Lowered:
        kind = type(node)
        return (yield from self._chain(kind, [partial(self._ask, part) for part in _parts(node)], outcome))

    def _ask(self, node: exp.Expr, outcome: Outcome) -> Lowered:
        return (yield node, outcome)

    def _chain(self, kind: type[exp.Expr], parts: list[_Part], outcome: Outcome) -> Lowered:
        deciding = Outcome.TRUE if kind is exp.Or else Outcome.FALSE
        if outcome is deciding.negated:
            return self._form.all_of((yield from _each(parts, outcome)))
        if outcome is deciding:
            fails = yield from _each(parts[:-1], Outcome.ERROR)
            decides = yield from _each(parts, deciding)
            return chains.decided(self._form, decides, [*fails, FALSE])
        fails = yield from _each(parts, Outcome.ERROR)
        if {FALSE, fails[0]}.issuperset(fails):
            return fails[0]
        decides = yield from _each(parts, deciding)
        return chains.failed(self._form, decides, fails)

    def _not(self, node: exp.Not, outcome: Outcome) -> Lowered:
        return (yield node.this, outcome.negated)

    def _column(self, node: exp.Column, outcome: Outcome) -> Lowered:
        """A property as a boolean: FALSE if it is there."""
        return IsPresent(node.name) if outcome is Outcome.FALSE else FALSE
        yield

    def _boolean(self, node: exp.Boolean, outcome: Outcome) -> Lowered:
        return TRUE if outcome is (Outcome.TRUE if node.this else Outcome.FALSE) else FALSE
        yield

    def _null(self, node: exp.Null, outcome: Outcome) -> Lowered:
        return FALSE
        yield

    def _in(self, node: exp.In, outcome: Outcome) -> Lowered:
        name = inside(node.this).name
        listed = TextIn(name, frozenset(literal.this for literal in node.expressions))
        match outcome:
            case Outcome.TRUE:
                return listed
            case Outcome.FALSE:
                return self._form.all_of([IsPresent(name), Not(listed)])
            case Outcome.ERROR:
                return FALSE
        yield

    def _search(self, node: exp.Expr, outcome: Outcome) -> Lowered:
        return (yield from self._searched(node, True, outcome))

    def _not_found(self, node: NotFound, outcome: Outcome) -> Lowered:
        return (yield from self._searched(node.this, False, outcome))

    def _searched(self, node: exp.Expr, wanted: bool, outcome: Outcome) -> Lowered:
        text: str = node.expression.this
        searched = operand(node.this)
        failing = (yield from nulls.fails(searched)) if text else FALSE
        if outcome is Outcome.ERROR:
            return failing
        true: Predicate = FALSE
        if text and isinstance(searched, Property):
            leaf = _LEAVES[type(node)](searched.name, text)
            true = leaf if wanted else self._form.all_of([IsPresent(searched.name), Not(leaf)])
        elif text and isinstance(searched, Value) and isinstance(searched.value, str):
            true = TRUE if SEARCHES[type(node)](searched.value, text) is wanted else FALSE
        if outcome is Outcome.TRUE:
            return true
        return self._form.negation(self._form.any_of([true, failing]))

    def _ordering(self, node: exp.Expr, outcome: Outcome) -> Lowered:
        left, comparison, right = operand(node.this), _COMPARISONS[type(node)], operand(node.expression)
        return (yield from self._ordered(left, comparison, right, outcome))

    def _between(self, node: exp.Between, outcome: Outcome) -> Lowered:
        value, low, high = (operand(node.args[name]) for name in ("this", "low", "high"))
        above = partial(self._ordered, value, Comparison.GREATER_OR_EQUAL, low)
        below = partial(self._ordered, value, Comparison.LESS_OR_EQUAL, high)
        return (yield from self._chain(exp.And, [above, below], outcome))

    def _ordered(self, left: Operand, comparison: Comparison, right: Operand, outcome: Outcome) -> Lowered:
        """NULL on the left is the result before the right is evaluated."""
        if isinstance(left, (Property, Value)) and isinstance(right, (Property, Value)):
            return comparisons.ordered(self._form, left, comparison, right, outcome)
        if outcome is not Outcome.ERROR:
            return FALSE
        left_fails = yield from nulls.fails(left)
        right_fails = yield from nulls.fails(right)
        left_is_there = yield from nulls.is_not_null(self._form, left)
        return self._form.any_of([left_fails, self._form.all_of([left_is_there, right_fails])])

    def _equality(self, node: exp.Expr, outcome: Outcome) -> Lowered:
        return (yield from equality.equal(self._form, operand(node.this), operand(node.expression), outcome))

    def _inequality(self, node: exp.NEQ, outcome: Outcome) -> Lowered:
        return (yield from self._equality(node, outcome.negated))


def _parts(node: exp.And | exp.Or) -> list[exp.Expr]:
    """The operands of nested ANDs, or ORs, from left to right: both are associative, errors included."""
    kind, parts, stack = type(node), [], [node]
    while stack:
        part = inside(stack.pop())
        if isinstance(part, kind):
            stack += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _each(parts: Iterable[_Part], outcome: Outcome) -> Generator[tuple[exp.Expr, Outcome], Predicate, list[Predicate]]:
    predicates = []
    for part in parts:
        predicates.append((yield from part(outcome)))
    return predicates


_RULES: dict[type[exp.Expr], Callable[..., Lowered]] = {
    exp.Paren: Lowering._paren,
    exp.Or: Lowering._logic,
    exp.And: Lowering._logic,
    exp.Not: Lowering._not,
    exp.Column: Lowering._column,
    exp.Boolean: Lowering._boolean,
    exp.Null: Lowering._null,
    exp.In: Lowering._in,
    exp.Contains: Lowering._search,
    exp.StartsWith: Lowering._search,
    exp.EndsWith: Lowering._search,
    NotFound: Lowering._not_found,
    exp.EQ: Lowering._equality,
    exp.Is: Lowering._equality,
    exp.NEQ: Lowering._inequality,
    exp.Between: Lowering._between,
    exp.GT: Lowering._ordering,
    exp.GTE: Lowering._ordering,
    exp.LT: Lowering._ordering,
    exp.LTE: Lowering._ordering,
}
