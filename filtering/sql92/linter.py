"""What the broker accepts, but can't mean what was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sqlglot import exp

from filtering.predicate import FALSE, TRUE, NumberType, Predicate
from filtering.sql92.lowering.operands import Property, Value, operand
from filtering.sql92.lowering.outcome import Outcome
from filtering.sql92.syntax.checks import compare
from filtering.sql92.syntax.nodes import NotFound, Number, inside

# Words that name amounts rather than counts.
_DECIMAL = re.compile(
    r"price|amount|cost|total|fee|tax|rate|ratio|percent|balance|discount|weight|temp|score|latitude|longitude"
    r"|volume|distance|length|height|width",
    re.IGNORECASE,
)
_TAGS = "TAGS"
_SHOWN = 40
_ZERO = "A decimal zero can't be written: compare with the smallest amount there is, for example 0.01."


class Finding(NamedTuple):
    """One thing to look at: its code, the offset where it is, what is wrong, and what to write instead."""

    code: str
    position: int
    sentence: str
    suggestion: str


def lint(expression: str, root: exp.Expr, where: Callable[[Outcome], Predicate]) -> list[Finding]:
    """All findings, by position. ``where`` gives where an outcome is that of the expression."""
    findings = [*_ignored(expression, root), *_constant(root, where)]
    stack = [root]
    findings += _bare(root)
    while stack:
        node = stack.pop()
        findings += _node(node)
        stack += node.iter_expressions()
    return sorted(findings, key=lambda finding: finding.position)


def _node(node: exp.Expr) -> Iterator[Finding]:
    match node:
        case exp.And() | exp.Or():
            yield from _bare(node.this)
            yield from _bare(node.expression)
        case exp.Not():
            yield from _reversed(node)
            yield from _bare(node.this)
        case exp.Neg() if isinstance(inside(node.this), exp.Column):
            name = inside(node.this).name
            yield Finding(
                "negated-property",
                node.meta["start"],
                f"A minus before a property is always NULL, whatever {name} is.",
                "Compare the property itself with the negative number.",
            )
        case exp.EQ() | exp.NEQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.Between():
            yield from _tight_not(node)
            yield from _integers(node)
            yield from _tags(node)
        case exp.In():
            yield from _tags(node)
        case exp.Is() | exp.Contains() | exp.StartsWith() | exp.EndsWith():
            yield from _tight_not(node)


def _ignored(expression: str, root: exp.Expr) -> Iterator[Finding]:
    position = root.meta.get("ignored")
    if position is not None:
        rest = expression[position:]
        shown = rest if len(rest) <= _SHOWN else rest[:_SHOWN] + "…"
        yield Finding(
            "ignored-input",
            position,
            f"The expression is complete before character {position + 1}; the broker ignores {shown!r}.",
            "Remove the rest, or join it with AND or OR; LIKE, arithmetic and functions don't exist.",
        )


def _constant(root: exp.Expr, where: Callable[[Outcome], Predicate]) -> Iterator[Finding]:
    position = root.meta["start"]
    true = where(Outcome.TRUE)
    if true is TRUE:
        yield Finding(
            "always-true", position, "The expression is TRUE for every message.", "Subscribe to * as TAG instead."
        )
    elif true is FALSE:
        code, outcome = "never-true", "never TRUE"
        false = where(Outcome.FALSE)
        if false is TRUE:
            code, outcome = "always-false", "FALSE for every message"
        elif false is FALSE and where(Outcome.ERROR) is FALSE:
            code, outcome = "always-null", "NULL for every message"
        yield Finding(
            code, position, f"The expression is {outcome}: nothing is delivered.", "Check each comparison by itself."
        )


def _bare(node: exp.Expr) -> Iterator[Finding]:
    column = inside(node)
    if isinstance(column, exp.Column):
        name = column.name
        yield Finding(
            "bare-property",
            column.meta["start"],
            f"A property alone is never TRUE, even if it is 'true': {name} gives FALSE, or NULL where it is missing.",
            f"Write {name} = TRUE for its value, or {name} IS NOT NULL for its presence.",
        )


def _tight_not(node: exp.Expr) -> Iterator[Finding]:
    left = node.this
    if isinstance(left, exp.Not) and not isinstance(left.this, (exp.In, exp.Between, exp.Is, NotFound)):
        yield Finding(
            "not-binds-tightly",
            left.meta["start"],
            "NOT takes only the next operand, not the comparison after it.",
            "Put parentheses around the comparison: NOT (… = …).",
        )


def _integers(node: exp.Expr) -> Iterator[Finding]:
    sides = [operand(part) for part in node.iter_expressions()]
    for side in sides:
        if isinstance(side, Property) and _DECIMAL.search(side.name):
            for other in sides:
                if (
                    isinstance(other, Value)
                    and isinstance(other.value, Number)
                    and other.value.type is not NumberType.DOUBLE
                ):
                    value = other.value.value
                    yield Finding(
                        "integer-literal",
                        node.meta["start"],
                        f"Compared with the integer {value}, a {side.name} like '55.10' is an error, not a number.",
                        f"Write {value}.0 if {side.name} may have decimals." if value else _ZERO,
                    )
                    return


def _reversed(node: exp.Not) -> Iterator[Finding]:
    between = node.this
    if not isinstance(between, exp.Between):
        return
    low, high = operand(between.args["low"]), operand(between.args["high"])
    if (
        isinstance(low, Value)
        and isinstance(high, Value)
        and isinstance(low.value, Number)
        and isinstance(high.value, Number)
        and compare(low.value, high.value) > 0
    ):
        yield Finding(
            "reversed-not-between",
            node.meta["start"],
            "The lower bound is above the upper one, so every number is outside.",
            "Swap the bounds.",
        )


def _tags(node: exp.Expr) -> Iterator[Finding]:
    if not any(isinstance(part, exp.Column) and part.name == _TAGS for part in map(inside, node.iter_expressions())):
        return
    for literal in node.iter_expressions():
        text = literal.this if isinstance(literal, exp.Literal) and literal.is_string else "tag"
        if "||" in text or text != text.strip() or not text:
            yield Finding(
                "impossible-tag",
                node.meta["start"],
                f"A message has one tag, trimmed and not empty: {text!r} can't be one.",
                "List single tags: TAGS IN ('TagA', 'TagB').",
            )
