"""Predicates in normal form, so that most equal predicates are one object.

Negation occurs at leaves only. Conjunctions and disjunctions are flat and sorted. They contain no repeated terms
and no terms that other terms imply. Terms about one property are merged. Comparisons of integers have closed bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from filtering.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Constant,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    PropertyLeaf,
    PropertyPairLeaf,
    TextIn,
)
from filtering.sql92.normal_form import property_terms
from filtering.sql92.normal_form.decided import Decided
from filtering.sql92.normal_form.form import Form
from filtering.terms import without_not

_READABLE = 160
"""The characters of a sort key that are kept. A hash stands for all of a longer one."""
_MANY = 64
"""Terms with more terms of their own are not merged into others or simplified: expressions may have thousands."""
_CHEAP = (IsPresent, TextIn, IsTrueText)


class NormalForm(Form):
    """Builds predicates in normal form. It caches results: expressions that share one object compile faster."""

    def __init__(self) -> None:
        self._negations: dict[Predicate, Predicate] = {}
        self._keys: dict[Predicate, str] = {}

    def all_of(self, terms: Iterable[Predicate]) -> Predicate:
        return self._combined(And, Or, terms)

    def any_of(self, terms: Iterable[Predicate]) -> Predicate:
        return self._combined(Or, And, terms)

    def negation(self, predicate: Predicate) -> Predicate:
        if isinstance(predicate, Constant):
            return FALSE if predicate.value else TRUE
        if isinstance(predicate, Not):
            return predicate.operand
        if not isinstance(predicate, (And, Or)):
            return Not(predicate)
        known = self._negations
        stack = [predicate]
        while stack:
            node = stack[-1]
            terms = [term if isinstance(term, (And, Or)) else self.negation(term) for term in node.operands]
            unknown = [term for term in terms if isinstance(term, (And, Or)) and term not in known]
            if unknown:
                stack += unknown
            else:
                stack.pop()
                combine = self.any_of if isinstance(node, And) else self.all_of
                known[node] = combine(known.get(term, term) for term in terms)
        return known[predicate]

    def _combined(self, kind: type[And | Or], dual: type[And | Or], terms: Iterable[Predicate]) -> Predicate:
        neutral, absorbing = (TRUE, FALSE) if kind is And else (FALSE, TRUE)
        flat = _flat(kind, terms, neutral)
        while True:
            if absorbing in flat:
                return absorbing
            if len(flat) < 2:
                return flat[0] if flat else neutral
            merged = _merged(kind, flat)
            if merged is None:
                return absorbing
            reduced = self._reduced(kind, dual, merged)
            if reduced == merged:
                break
            flat = _flat(kind, reduced, neutral)
        if len(merged) == 1:
            return merged[0]
        return kind(tuple(sorted(merged, key=self._key)))

    def _reduced(self, kind: type[And | Or], dual: type[And | Or], terms: list[Predicate]) -> list[Predicate]:
        """Removes from compound terms what other terms decide: ``x and (x or y)``, ``x and (not x or y)``."""
        compounds = [term for term in terms if isinstance(term, dual)]
        if not compounds or sum(len(term.terms) for term in compounds) > _MANY:
            return terms
        decided = Decided(kind, terms)
        result = []
        for term in terms:
            if not isinstance(term, dual):
                result.append(term)
                continue
            kept = []
            for inner in term.terms:
                value = decided.value(inner)
                if value is (kind is And):
                    break
                if value is None:
                    kept.append(inner)
            else:
                result.append(term if len(kept) == len(term.terms) else self._combined(dual, kind, kept))
        return result

    def _key(self, predicate: Predicate) -> str:
        """The sort key of a term: cheap leaves first, then by name. It is the same in every run."""
        keys = self._keys
        known = keys.get(predicate)
        if known is not None:
            return known
        stack = [predicate]
        while stack:
            node = stack[-1]
            unknown = [operand for operand in node.operands if operand not in keys]
            if unknown:
                stack += unknown
            else:
                stack.pop()
                if node not in keys:
                    keys[node] = _key(node, [keys[operand] for operand in node.operands])
        return keys[predicate]


def present_but_not(leaf: PropertyLeaf) -> Predicate:
    """The property is present and ``leaf``, which is not IsPresent, is false. The result is in normal form."""
    return And((IsPresent(leaf.name), Not(leaf)))


def number_is(name: str, type_: NumberType, comparison: Comparison, value: int | float) -> Predicate:
    """``NumberIs`` with closed bounds for integers; FALSE if no number of the type is in bounds."""
    if type_ is not NumberType.DOUBLE:
        if comparison is Comparison.GREATER:
            return _closed(name, type_, Comparison.GREATER_OR_EQUAL, int(value) + 1)
        if comparison is Comparison.LESS:
            return _closed(name, type_, Comparison.LESS_OR_EQUAL, int(value) - 1)
    return NumberIs(name, type_, comparison, value)


def _closed(name: str, type_: NumberType, comparison: Comparison, value: int) -> Predicate:
    bits = 31 if type_ is NumberType.INT else 63
    return NumberIs(name, type_, comparison, value) if -(2**bits) <= value < 2**bits else FALSE


def _flat(kind: type[And | Or], terms: Iterable[Predicate], neutral: Predicate) -> list[Predicate]:
    flat: dict[Predicate, None] = {}
    for term in terms:
        if isinstance(term, kind) and len(term.terms) <= _MANY:
            flat.update(dict.fromkeys(term.terms))
        elif term is not neutral:
            flat[term] = None
    return list(flat)


def _merged(kind: type[And | Or], terms: list[Predicate]) -> list[Predicate] | None:
    """Merges terms about one property. None if they decide the conjunction (FALSE) or the disjunction (TRUE)."""
    groups: dict[str, list[Predicate]] = {}
    rest = []
    for term in terms:
        leaf = without_not(term)
        if isinstance(leaf, PropertyLeaf):
            groups.setdefault(leaf.name, []).append(term)
        else:
            rest.append(term)
    present = set(rest)
    if any(isinstance(term, Not) and term.operand in present for term in rest):
        return None
    if len(groups) + len(rest) == len(terms):
        return terms
    merge = property_terms.all_of if kind is And else property_terms.any_of
    result: list[Predicate] = []
    for group in groups.values():
        merged = merge(group) if len(group) > 1 else group
        if merged is None:
            return None
        result += merged
    return result + rest


def _key(node: Predicate, operands: list[str]) -> str:
    match node:
        case Not():
            return operands[0] + "!"
        case And() | Or():
            key = f"9{type(node).__name__}({','.join(operands)})"
            if len(key) > _READABLE:
                key = key[:_READABLE] + blake2b(key.encode(), digest_size=16).hexdigest()
            return key
        case TextIn():
            return f"1{node.name}\0{type(node).__name__}{sorted(node.texts)}"
        case NumberIs():
            return f"2{node.name}\0{node.type.value}{node.comparison.value}{node.value!r}"
        case PropertyLeaf():
            return f"{1 if isinstance(node, _CHEAP) else 2}{node.name}\0{type(node).__name__}{_details(node)}"
        case PropertyPairLeaf():
            return f"3{node.left}\0{node.right}\0{type(node).__name__}{_details(node)}"
        case _:
            return f"0{node}"


def _details(leaf: Predicate) -> str:
    return repr([getattr(leaf, field) for field in leaf.__dataclass_fields__])
