"""Finds parts of expressions that the broker accepts, but that cannot mean what was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from filtering.predicate import FALSE, TRUE, NumberType, Predicate
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92 import nodes
from filtering.sql92.lowering import EvaluationOutcome, Value, operand
from filtering.sql92.nodes import Node, Number, Property, inside
from filtering.sql92.parser import advice_at, compare, is_quoted_name, sentence
from filtering.sql92.reference import EvaluationError, evaluate
from filtering.sql92.tokens import string_literal
from filtering.subscription_data import tags_in

# Words that name amounts rather than counts.
_DECIMAL = re.compile(
    r"price|amount|cost|total|fee|tax|rate|ratio|percent|balance|discount|weight|temp|score|latitude|longitude"
    r"|volume|distance|length|height|width",
    re.IGNORECASE,
)
_MISREAD = frozenset({"bare-property", "negated-property", "not-binds-tightly", "quoted-name"})
"""Findings from which it may follow that the expression has the same outcome for every message."""
_TAGS = "TAGS"
PLACEHOLDER = re.compile(r"[$#]\{")
"""Such as ${region} and #{region}, which a framework was to replace."""
_SHOWN = 40
_ZERO = "A decimal zero can't be written: compare with the smallest possible amount, for example 0.01."


class SuspiciousPart(NamedTuple):
    """A part of an expression, what is wrong, and what to write. ``delivers_nothing``: the whole is never TRUE."""

    code: str
    position: int
    sentence: str
    suggestion: str
    delivers_nothing: bool = False


def lint(
    expression: str,
    root: Node,
    ignored: int | None,
    predicate_of: Callable[[EvaluationOutcome], Predicate],
    version: RocketMQVersion = NEWEST,
) -> list[SuspiciousPart]:
    """All findings, ordered by position: one for each cause, not for what follows from it.

    ``ignored``: the offset of the input that the broker ignores, or None. ``predicate_of`` returns the predicate
    that is true if the expression has an outcome.
    """
    unquoted = nodes.unquoted_texts(root)
    alone: dict[Node, nodes.UnquotedText] = {
        unquoted_text.text: unquoted_text for unquoted_text in unquoted if unquoted_text.is_alone
    }
    findings = [
        *_bare(root),
        *_unquoted(unquoted),
        *_names(root),
        *(_placeholders(root) if PLACEHOLDER.search(expression) else ()),
        *(finding for node, tight in _nodes(root) for finding in _node_findings(node, tight, alone)),
    ]
    misread = [finding for finding in findings if finding.code in _MISREAD]
    others = [finding for finding in findings if finding.code not in _MISREAD]
    for cut in _ignored(expression, ignored, version):
        complete = [finding for finding in misread if finding.position != _last_operand(root).position]
        if len(complete) < len(misread):  # What is ignored was to compare the last property.
            misread = [*complete, cut]
        else:
            others.append(cut)
    for constant in _constant(root, predicate_of):
        if misread:
            misread = [_with_outcome(finding, constant) for finding in misread]
        else:
            others.append(constant)
    return sorted(misread + others, key=lambda finding: finding.position)


def _unquoted(texts: Iterable[nodes.UnquotedText]) -> Iterator[SuspiciousPart]:
    for unquoted in texts:
        if not unquoted.is_alone:
            yield SuspiciousPart(
                "unquoted-text",
                unquoted.text.position,
                f"{unquoted.text.name} is a property here, which is compared with the property {unquoted.name}.",
                f"If it is a text, write {unquoted.correction}.",
            )


def _names(root: Node) -> Iterator[SuspiciousPart]:
    for node in nodes.walk(root):
        if isinstance(node, (Property, nodes.In)) and (meant := misnamed(node.name)) is not None:
            yield SuspiciousPart(
                "misnamed-property",
                node.position,
                f"{node.name} is a property of the producer's own; RocketMQ's is {meant}.",
                f"Write {meant}, unless producers set {node.name}.",
            )


def _placeholders(root: Node) -> Iterator[SuspiciousPart]:
    for node in nodes.walk(root):
        texts = node.texts if isinstance(node, nodes.In) else ()
        if isinstance(node, nodes.TextLiteral):
            texts = (node.value,)
        elif isinstance(node, nodes.TextSearch):
            texts = (node.text,)
        for text in filter(PLACEHOLDER.search, texts):
            yield SuspiciousPart(
                "placeholder",
                node.position,
                f"{string_literal(text)} is a placeholder that nothing replaced: the broker compares with it as it is.",
                "Write the value.",
            )


@lru_cache(maxsize=1 << 12)
def misnamed(name: str) -> str | None:
    """RocketMQ's property for the tag or the keys of a message, if a name is another spelling of it."""
    meant = f"{name.upper().removesuffix('S')}S"
    return meant if meant in ("TAGS", "KEYS") and name != meant else None


def _with_outcome(cause: SuspiciousPart, constant: SuspiciousPart) -> SuspiciousPart:
    sentence = f"{cause.sentence} {constant.sentence}"
    return cause._replace(sentence=sentence, delivers_nothing=constant.delivers_nothing)


def _nodes(root: Node) -> Iterator[tuple[Node, nodes.Not | None]]:
    """All operators, each with its tight NOT. This NOT itself is left out: its operand was not meant to stand alone."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ATOMS):
            continue
        tight = _tight_not(node)
        yield node, tight
        waiting += node.children if tight is None else [tight.operand, *node.children[1:]]


_ATOMS = (Property, nodes.TextLiteral, nodes.NumberLiteral, nodes.BooleanLiteral, nodes.NullLiteral)


def _last_operand(root: Node) -> Node:
    while root.children:
        root = root.children[-1]
    return root


def _node_findings(
    node: Node, tight: nodes.Not | None, alone: Mapping[Node, nodes.UnquotedText]
) -> Iterator[SuspiciousPart]:
    if tight is not None:
        yield SuspiciousPart(
            "not-binds-tightly",
            tight.position,
            "NOT takes only the next operand, not the comparison after it.",
            "Put parentheses around the comparison: NOT (… = …).",
        )
    match node:
        case nodes.And() | nodes.Or():
            yield from _bare(node.left)
            yield from _bare(node.right, alone.get(inside(node.right)))
        case nodes.Not():
            yield from _reversed(node)
            yield from _bare(node.operand)
        case nodes.Minus(operand=negated) if isinstance(inner := inside(negated), Property):
            yield SuspiciousPart(
                "negated-property",
                node.position,
                f"A minus before a property is always NULL, whatever {inner.name} is.",
                "Compare the property itself with the negative number.",
            )
        case nodes.Equal() | nodes.NotEqual() | nodes.Ordering():
            yield from _quoted_name(node.left, node.right)
            yield from _integers(node, [(node.left, node.right)])
            yield from _tags(node, _texts(node))
        case nodes.Between():
            yield from _integers(node, [(node.operand, node.low), (node.operand, node.high)])
        case nodes.IsNull(operand=tested) | nodes.TextSearch(operand=tested):
            yield from _quoted_name(tested)
        case nodes.In(name=name, texts=texts) if name == _TAGS:
            yield from _tags(node, texts)


def _quoted_name(tested: Node, other: Node | None = None) -> Iterator[SuspiciousPart]:
    """A text where a property is tested. ``other``: the constant that it is compared with, or None."""
    text = inside(tested)
    if is_quoted_name(text) and (other is None or _is_constant(other)):
        yield SuspiciousPart(
            "quoted-name",
            text.position,
            f"{string_literal(text.value)} is a text here, not the property {text.value}.",
            f"Write {text.value} without quotes.",
        )


def _is_constant(node: Node) -> bool:
    return isinstance(operand(node), Value) or isinstance(inside(node), nodes.BooleanLiteral)


def _ignored(expression: str, position: int | None, version: RocketMQVersion) -> Iterator[SuspiciousPart]:
    if position is not None:
        rest = expression[position:]
        shown = rest if len(rest) <= _SHOWN else rest[:_SHOWN] + "…"
        advice = advice_at(expression, position, version) or "remove the rest, or join it with AND or OR"
        yield SuspiciousPart(
            "ignored-input",
            position,
            f"The expression is complete before character {position + 1}; the broker ignores {shown!r}.",
            sentence(advice),
        )


def _constant(root: Node, predicate_of: Callable[[EvaluationOutcome], Predicate]) -> Iterator[SuspiciousPart]:
    position = root.position
    true = predicate_of(EvaluationOutcome.TRUE)
    if true is TRUE:
        yield SuspiciousPart(
            "always-true", position, "The expression is TRUE for every message.", "Subscribe to * as TAG instead."
        )
    elif true is FALSE:
        code, outcome = "never-true", "never TRUE"
        false = predicate_of(EvaluationOutcome.FALSE)
        if false is TRUE:
            code, outcome = "always-false", "FALSE for every message"
        elif false is FALSE and predicate_of(EvaluationOutcome.ERROR) is FALSE:
            code, outcome = "always-null", "NULL for every message"
        yield SuspiciousPart(
            code, position, f"The expression is {outcome}: nothing is delivered.", "Check each comparison by itself.",
            delivers_nothing=True,
        )  # fmt: skip


def _bare(node: Node, text: nodes.UnquotedText | None = None) -> Iterator[SuspiciousPart]:
    """``text``: the property as a value of another one, if it may be meant so."""
    inner = inside(node)
    if isinstance(inner, Property):
        name = inner.name
        value = "Write" if text is None else f"If it is a value of {text.name}, write {text.correction}; otherwise"
        yield SuspiciousPart(
            "bare-property",
            inner.position,
            f"A property alone is never TRUE, even if it is 'true': {name} gives FALSE, or NULL where it is missing.",
            f"{value} {name} = TRUE for its value, or {name} IS NOT NULL for its presence.",
        )


def _tight_not(node: Node) -> nodes.Not | None:
    """The NOT that a comparison has as its left operand."""
    match node:
        case nodes.Equal() | nodes.NotEqual() | nodes.Ordering():
            left = node.left
        case nodes.Between() | nodes.IsNull() | nodes.TextSearch():
            left = node.operand
        case _:
            return None
    # The NOT of NOT BETWEEN, NOT IN and IS NOT NULL belongs to the operator.
    if isinstance(left, nodes.Not) and not isinstance(left.operand, (nodes.Between, nodes.In, nodes.IsNull)):
        return left
    return None


def _integers(node: Node, compared: Iterable[tuple[Node, Node]]) -> Iterator[SuspiciousPart]:
    """``compared``: the pairs of parts that the node compares."""
    for pair in compared:
        for part, other in (pair, pair[::-1]):
            side, value = operand(part), operand(other)
            if not isinstance(side, Property) or not _DECIMAL.search(side.name):
                continue
            literal = value.value if isinstance(value, Value) else None
            if isinstance(literal, Number) and literal.type is not NumberType.DOUBLE:
                number = literal.value
                failing = next((text for text in ("55.10", f"{number}.5") if _fails(node, side.name, text)), None)
                if failing is None:  # BETWEEN ends before it compares the property
                    continue
                yield SuspiciousPart(
                    "integer-literal",
                    node.position,
                    f"Compared with the integer {number}, {side.name} = '{failing}' is an error, not a number.",
                    f"Write {number}.0 if {side.name} may have decimals." if number else _ZERO,
                )
                return


def _fails(node: Node, name: str, text: str) -> bool:
    """Whether the evaluation fails on a message whose only property is ``name``."""
    try:
        evaluate(node, {name: text})
    except EvaluationError:
        return True
    return False


def _reversed(node: nodes.Not) -> Iterator[SuspiciousPart]:
    if not isinstance(node.operand, nodes.Between):
        return
    match operand(node.operand.low), operand(node.operand.high):
        case Value(value=Number() as low), Value(value=Number() as high) if compare(low, high) > 0:
            yield SuspiciousPart(
                "reversed-not-between",
                node.position,
                "The lower bound is above the upper one, so every number is outside.",
                "Swap the bounds.",
            )


def _texts(node: Node) -> list[str]:
    """The strings with which TAGS is compared."""
    sides = [inside(side) for side in node.children]
    if not any(isinstance(side, Property) and side.name == _TAGS for side in sides):
        return []
    return [side.value for side in sides if isinstance(side, nodes.TextLiteral)]


def _tags(node: Node, texts: Iterable[str]) -> Iterator[SuspiciousPart]:
    for text in texts:
        if text not in tags_in(text):
            yield SuspiciousPart(
                "impossible-tag",
                node.position,
                f"Tags are listed with || and trimmed: no tag subscription can name {text!r}.",
                "List single tags: TAGS IN ('TagA', 'TagB').",
            )
