"""How a new filter relates to the old one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from filtering.predicate import And, Not, Predicate
from filtering.relation.satisfying import NONE, Answer, Message, satisfying


class Kind(Enum):
    """What is proven of the messages that the new filter delivers, against those of the old one."""

    EQUIVALENT = "equivalent"
    """The same."""
    WIDER = "wider"
    """All that the old one delivers, or more."""
    NARROWER = "narrower"
    """Nothing that the old one does not deliver."""
    DISJOINT = "disjoint"
    """Nothing that the old one delivers."""
    OVERLAPPING = "overlapping"
    """Some of them, and others; there is a message for each case."""
    UNKNOWN = "unknown"
    """Nothing is proven."""


@dataclass(frozen=True)
class Relation:
    """``only_old``, ``only_new`` and ``both``: a message that only one of the filters delivers, or both.

    None where there is none, or none was found. ``plain_numbers``: the kind is proven of messages whose numbers are
    written with the digits 0 to 9. An int may be written with others, such as Arabic ones; a decimal may not.
    """

    kind: Kind
    only_old: Message | None
    only_new: Message | None
    both: Message | None
    plain_numbers: bool = False


def relation(old: Predicate, new: Predicate) -> Relation:
    """What can be proven of two predicates in a short time. Equal ones are one object, and need no proof."""
    if old is new:
        return Relation(Kind.EQUIVALENT, None, None, _message(satisfying(new)))
    found = _relation(old, new, plain=False)
    if any(message is not None and _has_other_digits(message) for message in (found.only_old, found.only_new)):
        return _relation(old, new, plain=True)
    return found


def _relation(old: Predicate, new: Predicate, plain: bool) -> Relation:
    only_old = satisfying(And((old, Not(new))), plain)
    only_new = satisfying(And((new, Not(old))), plain)
    both = satisfying(And((old, new)), plain)
    if only_old is NONE:
        kind = Kind.EQUIVALENT if only_new is NONE else Kind.WIDER
    elif only_new is NONE:
        kind = Kind.NARROWER
    elif both is NONE:
        kind = Kind.DISJOINT
    else:
        shown = (only_old, only_new, both)
        kind = Kind.OVERLAPPING if None not in map(_message, shown) else Kind.UNKNOWN
    return Relation(kind, _message(only_old), _message(only_new), _message(both), plain)


def _message(answer: Answer) -> Message | None:
    return answer if isinstance(answer, dict) else None


def _has_other_digits(message: Message) -> bool:
    return any(character.isdigit() and not character.isascii() for text in message.values() for character in text)
