"""What the terms of a conjunction or disjunction decide about the parts of its other terms."""

from __future__ import annotations

from filtering.predicate import And, Or, Predicate, PropertyLeaf
from filtering.sql92.normal_form import property_terms
from filtering.terms import opposite, without_not

_FEW = 8
"""Operands of a compound term, or terms about one property: more are not compared, which would take too long."""


class Decided:
    """The values of other terms if all ``terms`` of a conjunction are true, or all of a disjunction are false."""

    def __init__(self, kind: type[And | Or], terms: list[Predicate]) -> None:
        """``kind``: And for a conjunction, Or for a disjunction."""
        leaves = [term for term in terms if not isinstance(term, (And, Or))]
        self._true = set(leaves if kind is And else map(opposite, leaves))
        self._facts: dict[str, list[Predicate]] = {}
        for fact in self._true:
            leaf = without_not(fact)
            if isinstance(leaf, PropertyLeaf):
                self._facts.setdefault(leaf.name, []).append(fact)

    def value(self, term: Predicate) -> bool | None:
        """True, False, or None if both are possible."""
        if isinstance(term, (And, Or)):
            return self._compound(term) if len(term.terms) <= _FEW else None
        if term in self._true:
            return True
        if opposite(term) in self._true:
            return False
        leaf = without_not(term)
        facts = self._facts.get(leaf.name, []) if isinstance(leaf, PropertyLeaf) else []
        if not 0 < len(facts) <= _FEW:
            return None
        if property_terms.all_of([*facts, term]) is None:
            return False
        return True if property_terms.all_of([*facts, opposite(term)]) is None else None

    def _compound(self, term: And | Or) -> bool | None:
        """The value of a compound term whose operands are leaves."""
        values = {None if isinstance(inner, (And, Or)) else self.value(inner) for inner in term.terms}
        deciding = isinstance(term, Or)
        if deciding in values:
            return deciding
        return None if None in values else not deciding
