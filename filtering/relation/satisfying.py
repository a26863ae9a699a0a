"""A message for which a predicate holds, or the proof that there is none.

The predicate is taken apart branch by branch: a branch is a set of leaves, and negated leaves, that must all be true.
Rules about one property (:mod:`filtering.relation.property_rules`) close branches that cannot be; for the others a
message is put together from likely texts, and tried.
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

MOST_STEPS = 4_000
"""Branches that are looked at before the answer is UNKNOWN."""
MOST_NODES = 3_000
MOST_TRIES = 600
"""Messages that are tried for a branch."""

Message: TypeAlias = Mapping[str, str]
"""The properties of a message."""


class _Answer(Enum):
    NONE = "there is no such message"
    UNKNOWN = "none was found, and none was ruled out"


NONE, UNKNOWN = _Answer.NONE, _Answer.UNKNOWN
Answer: TypeAlias = Message | _Answer


def satisfying(predicate: Predicate, plain: bool = False) -> Answer:
    """A message for which the predicate holds, NONE where it is proven that there is none, else UNKNOWN.

    ``plain``: only of messages whose numbers are written with the digits 0 to 9. A predicate over tags codes is
    UNKNOWN.
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
    """``terms`` by property, and those about two properties, must all hold; then all of ``choices``, each a choice."""

    terms: Mapping[str, tuple[Predicate, ...]]
    pairs: tuple[Predicate, ...]
    choices: tuple[tuple[Predicate, ...], ...]


def _branches(predicate: Predicate, plain: bool) -> Iterator[_Branch | None]:
    """The branches without choices that no rule closes, and None for each step to them."""
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
            others = tuple(each for each in grown.choices if each is not choice)
            rest = _Branch(grown.terms, grown.pairs, others)
            stack += [(rest, [term]) for term in reversed(choice)]


def _grown(branch: _Branch, todo: list[Predicate], plain: bool) -> _Branch | None:
    """The branch with more that must hold; None where that cannot be."""
    terms, pairs, choices = dict(branch.terms), list(branch.pairs), list(branch.choices)
    changed = set()
    todo = list(todo)
    while todo:
        node = todo.pop()
        inner = node.operand if isinstance(node, Not) else node
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
                todo += [_opposite(term) for term in inner.terms]
            case And():
                choices.append(tuple(_opposite(term) for term in inner.terms))
            case Or():
                choices.append(inner.terms)
            case PropertyLeaf(name=name):
                terms[name] = (*terms.get(name, ()), node)
                changed.add(name)
            case _:
                if _opposite(node) in pairs:
                    return None
                pairs.append(node)
                if not negated:
                    todo += _of_both(inner)
    if not all(can_hold(terms[name], plain) for name in changed):
        return None
    return _Branch(terms, tuple(pairs), tuple(choices))


def _of_both(pair: Predicate) -> list[Predicate]:
    """What a true question about two properties says of each."""
    if isinstance(pair, DoublesCompare):
        return [IsNumber(name, NumberType.DOUBLE) for name in pair.properties]
    return [IsPresent(name) for name in pair.properties]


def _shortened(predicate: Predicate, message: Message) -> Message:
    """The message without the properties that it does not need."""
    for name in message:
        rest = {other: text for other, text in message.items() if other != name}
        if holds(predicate, rest):
            return _shortened(predicate, rest)
    return message


def _opposite(term: Predicate) -> Predicate:
    return term.operand if isinstance(term, Not) else Not(term)


def _messages(branch: _Branch, plain: bool) -> Iterator[Message]:
    """Messages that satisfy each property's terms, the likely ones first."""
    together = {name for pair in branch.pairs for name in (pair.operand if isinstance(pair, Not) else pair).properties}
    names = [*(name for name in branch.terms if name not in together), *sorted(together)]
    shared = likely_texts([term for name in together for term in branch.terms.get(name, ())], plain)
    texts = []
    for name in names:
        more = shared if name in together else ()
        found = likely_texts(branch.terms.get(name, ()), plain, more)
        if not found:
            return
        texts.append(found if name in together else found[:1])
    for chosen in product(*texts):
        yield {name: text for name, text in zip(names, chosen, strict=True) if text is not MISSING}
