"""Finds a message for which a predicate is true, or proves that there is none.

The predicate is split into branches: a branch is a set of leaves and negated leaves that must all be true. Rules
about one property (:mod:`filtering.relation.property_rules`) close branches that are impossible. For the other
branches, messages are built from likely texts and tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice, product
from typing import TypeAlias

from filtering.predicate import (
    And,
    Constant,
    DoublesCompare,
    IsNumber,
    IsPresent,
    Not,
    NumberType,
    Or,
    Predicate,
    PropertyLeaf,
    TagsCodeIn,
    postorder,
)
from filtering.predicate_value import holds
from filtering.relation.property_rules import can_hold
from filtering.relation.texts import MISSING, likely_texts
from filtering.terms import opposite, without_not

MOST_STEPS = 4_000
"""The number of branches that are checked before the answer is UNKNOWN."""
MOST_NODES = 3_000
MOST_TRIES = 600
"""The number of messages that are tried for a branch."""

Message: TypeAlias = Mapping[str, str]
"""The properties of a message."""


class _Answer(Enum):
    NONE = "there is no such message"
    UNKNOWN = "no message was found, and no proof that there is none"


NONE, UNKNOWN = _Answer.NONE, _Answer.UNKNOWN
Answer: TypeAlias = Message | _Answer


def satisfying(predicate: Predicate, plain: bool = False) -> Answer:
    """A message for which the predicate is true; NONE if it is proven that there is none, else UNKNOWN.

    ``plain``: only messages whose numbers have the digits 0 to 9 count. For a predicate over tags codes, the answer
    is UNKNOWN.
    """
    nodes = list(islice(postorder([predicate]), MOST_NODES))
    if len(nodes) == MOST_NODES or any(isinstance(node, TagsCodeIn) for node in nodes):
        return UNKNOWN
    open_branches = False
    for steps, branch in enumerate(_branches(predicate, plain)):
        if branch is not None:
            open_branches = True
            for message in islice(_messages(branch, plain), MOST_TRIES):
                if holds(predicate, message):
                    return _shortened(predicate, message)
        if steps == MOST_STEPS:
            return UNKNOWN
    return UNKNOWN if open_branches else NONE


@dataclass(frozen=True)
class _Branch:
    """All ``terms`` (by property), all ``pairs`` (terms about two properties) and one term of each choice are true."""

    terms: Mapping[str, tuple[Predicate, ...]]
    pairs: tuple[Predicate, ...]
    choices: tuple[tuple[Predicate, ...], ...]


def _branches(predicate: Predicate, plain: bool) -> Iterator[_Branch | None]:
    """The branches without choices that no rule closes, and None for each step on the way to them."""
    stack = [(_Branch({}, (), ()), [predicate])]
    while stack:
        branch, todo = stack.pop()
        grown = _grown(branch, todo, plain)
        if grown is None:
            yield None
        elif not grown.choices:
            yield grown
        else:
            yield None
            choice = min(grown.choices, key=len)
            others = tuple(other for other in grown.choices if other is not choice)
            rest = _Branch(grown.terms, grown.pairs, others)
            stack += [(rest, [term]) for term in reversed(choice)]


def _grown(branch: _Branch, todo: list[Predicate], plain: bool) -> _Branch | None:
    """The branch with ``todo`` added; None if that is impossible."""
    terms, pairs, choices = dict(branch.terms), list(branch.pairs), list(branch.choices)
    changed = set()
    todo = list(todo)
    while todo:
        node = todo.pop()
        inner = without_not(node)
        negated = inner is not node
        match inner:
            case Constant(value=value):
                if value is negated:
                    return None
            case Not():
                todo.append(inner.operand)
            case And() if not negated:
                todo += inner.terms
            case Or() if negated:
                todo += [opposite(term) for term in inner.terms]
            case And():
                choices.append(tuple(opposite(term) for term in inner.terms))
            case Or():
                choices.append(inner.terms)
            case PropertyLeaf(name=name):
                terms[name] = (*terms.get(name, ()), node)
                changed.add(name)
            case _:
                if opposite(node) in pairs:
                    return None
                pairs.append(node)
                if not negated:
                    todo += _implied_terms(inner)
    if not all(can_hold(terms[name], plain) for name in changed):
        return None
    return _Branch(terms, tuple(pairs), tuple(choices))


def _implied_terms(pair: Predicate) -> list[Predicate]:
    """The terms about one property that a true leaf about two properties implies."""
    if isinstance(pair, DoublesCompare):
        return [IsNumber(name, NumberType.DOUBLE) for name in pair.properties]
    return [IsPresent(name) for name in pair.properties]


def _shortened(predicate: Predicate, message: Message) -> Message:
    """The message without properties that the predicate does not need."""
    needed = message
    for name in message:
        rest = {other: text for other, text in needed.items() if other != name}
        if holds(predicate, rest):
            needed = rest
    return needed


def _messages(branch: _Branch, plain: bool) -> Iterator[Message]:
    """Messages that satisfy the terms of each property, likely ones first."""
    together = {name for pair in branch.pairs for name in without_not(pair).properties}
    names = [*(name for name in branch.terms if name not in together), *sorted(together)]
    shared = likely_texts([term for name in together for term in branch.terms.get(name, ())], plain)
    texts = []
    for name in names:
        more = shared if name in together else ()
        likely = likely_texts(branch.terms.get(name, ()), plain, more)
        if not likely:
            return
        texts.append(likely if name in together else likely[:1])
    for chosen in product(*texts):
        yield {name: text for name, text in zip(names, chosen, strict=True) if text is not MISSING}
