"""The relation of a new filter to an old one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from filtering.predicate import And, Not, Predicate
from filtering.relation.satisfying import NONE, Answer, Message, satisfying
from filtering.type_checks import check_type


class Kind(Enum):
    """What is proven about the messages that the new filter delivers, compared with those of the old one."""

    EQUIVALENT = "equivalent"
    """It delivers the same messages."""
    WIDER = "wider"
    """It delivers all messages of the old one, and maybe more."""
    NARROWER = "narrower"
    """It delivers only messages of the old one."""
    DISJOINT = "disjoint"
    """It delivers no message of the old one."""
    OVERLAPPING = "overlapping"
    """It delivers some messages of the old one, and others. There is an example message for each case."""
    UNKNOWN = "unknown"
    """Nothing is proven."""


@dataclass(frozen=True)
class Relation:
    """The relation with example messages: delivered by one filter (``only_old``, ``only_new``) or by ``both``.

    An example is None if there is no such message, or if none was found. ``plain_numbers``: the kind is proven only
    for messages whose numbers have the digits 0 to 9. An int may have other digits, such as Arabic ones; a decimal
    may not.
    """

    kind: Kind
    only_old: Message | None
    only_new: Message | None
    both: Message | None
    plain_numbers: bool = False


def relation(old: Predicate, new: Predicate) -> Relation:
    """The relation of two predicates, as far as it can be proven in a short time."""
    for predicate in (old, new):
        check_type(predicate, Predicate, "a filter is a predicate, such as compile('price > 5').predicate")
    if old is new:
        return Relation(Kind.EQUIVALENT, None, None, _message(satisfying(new)))
    proven = _relation(old, new, plain=False)
    if any(message is not None and _has_other_digits(message) for message in (proven.only_old, proven.only_new)):
        return _relation(old, new, plain=True)
    return proven


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
        examples = (only_old, only_new, both)
        kind = Kind.OVERLAPPING if None not in map(_message, examples) else Kind.UNKNOWN
    return Relation(kind, _message(only_old), _message(only_new), _message(both), plain)


def _message(answer: Answer) -> Message | None:
    return answer if isinstance(answer, dict) else None


def _has_other_digits(message: Message) -> bool:
    return any(character.isdigit() and not character.isascii() for text in message.values() for character in text)
