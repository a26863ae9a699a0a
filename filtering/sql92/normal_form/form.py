"""Combines predicates that are evaluated, but never compared or shown: they need no normal form."""

from __future__ import annotations

from collections.abc import Iterable

from filtering.predicate import FALSE, TRUE, And, Or, Predicate
from filtering.terms import opposite


class Form:
    """Combines predicates without constants and repeated terms: in a third of the time that NormalForm takes."""

    def all_of(self, terms: Iterable[Predicate]) -> Predicate:
        """The conjunction of some terms; TRUE without any."""
        return _combined(And, TRUE, FALSE, terms)

    def any_of(self, terms: Iterable[Predicate]) -> Predicate:
        """The disjunction of some terms; FALSE without any."""
        return _combined(Or, FALSE, TRUE, terms)

    def negation(self, predicate: Predicate) -> Predicate:
        """The predicate that is true for exactly the other messages."""
        if predicate is TRUE or predicate is FALSE:
            return FALSE if predicate is TRUE else TRUE
        return opposite(predicate)


def _combined(kind: type[And | Or], neutral: Predicate, absorbing: Predicate, terms: Iterable[Predicate]) -> Predicate:
    distinct = dict.fromkeys(terms)
    if absorbing in distinct:
        return absorbing
    distinct.pop(neutral, None)
    if len(distinct) > 1:
        return kind(tuple(distinct))
    return next(iter(distinct), neutral)
