"""Predicates in normal form, so that most equal predicates are one object and are evaluated once for all groups.

Negation occurs at leaves only. Conjunctions and disjunctions are flat and sorted. They contain no repeated terms and no
terms that other terms imply. Comparisons of integers have closed bounds. NormalFormBuilder builds them bottom-up:

1. Terms are flattened, and constants and repetitions removed.
2. Terms about one property are merged (``all_of``, ``any_of``). A term is a leaf or a negated leaf; without the
   property, every leaf is false and every negated leaf is true. Lists of texts are intersected or united. A listed text
   decides every other leaf. Ranges of one number type are narrowed or widened.
3. Terms that are ANDs or ORs lose what the other terms decide (Decided): ``x and (not x or y)`` becomes ``x and y``.
4. The rest is sorted: cheap leaves first, then by name. If something changed in 3., it begins again.

Terms with many terms of their own are not merged or compared (_MANY, _FEW): expressions may have thousands.
Predicates that are evaluated, but never compared or shown, need no normal form: PredicateBuilder combines them in a
third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from filtering.predicate import (
    COMPARE,
    FALSE,
    TRUE,
    And,
    Comparison,
    IsNumber,
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
    all_hold,
    opposite,
    order,
    positive_and_negative,
    without_not,
)


class PredicateBuilder:
    """Combines predicates without constants and repeated terms: in a third of the time that NormalFormBuilder takes."""

    def all_of(self, terms: Iterable[Predicate]) -> Predicate:
        """The conjunction of some terms; TRUE without any."""
        return _combined(And, TRUE, FALSE, terms)

    def any_of(self, terms: Iterable[Predicate]) -> Predicate:
        """The disjunction of some terms; FALSE without any."""
        return _combined(Or, FALSE, TRUE, terms)

    def negation(self, predicate: Predicate) -> Predicate:
        """The predicate that is true for exactly the other messages."""
        return opposite(predicate)


def _combined(kind: type[And | Or], neutral: Predicate, absorbing: Predicate, terms: Iterable[Predicate]) -> Predicate:
    distinct = dict.fromkeys(terms)
    if absorbing in distinct:
        return absorbing
    distinct.pop(neutral, None)
    if len(distinct) > 1:
        return kind(tuple(distinct))
    return next(iter(distinct), neutral)


# Terms about one property.


_UPPER = (Comparison.LESS, Comparison.LESS_OR_EQUAL)
_LOWER = (Comparison.GREATER, Comparison.GREATER_OR_EQUAL)


def all_of(terms: list[Predicate]) -> list[Predicate] | None:
    """Merges the terms of a conjunction about one property. None if they cannot all be true."""
    ranges = [term for term in terms if isinstance(term, NumberIs)]
    if len(ranges) == len(terms):
        narrowest = _narrowed_ranges(ranges)
        return None if narrowest is None else [*narrowest]
    positive, negative = positive_and_negative(terms)
    name = [*positive, *negative][0].name
    if any(isinstance(leaf, IsPresent) for leaf in negative):
        return None if positive else [Not(IsPresent(name))]
    texts = _intersection(leaf.texts for leaf in positive if isinstance(leaf, TextIn))
    if texts is not None:
        texts = frozenset(text for text in texts if all_hold(text, positive, negative))
        return [TextIn(name, texts)] if texts else None
    if not set(negative).isdisjoint(positive):
        return None
    narrowed = _narrowed(positive)
    if narrowed is None:
        return None
    excluded = [leaf.texts for leaf in negative if isinstance(leaf, TextIn)]
    others = [leaf for leaf in negative if not isinstance(leaf, TextIn)]
    if excluded:
        texts = frozenset(text for text in frozenset().union(*excluded) if all_hold(text, narrowed, others))
        others += [TextIn(name, texts)] if texts else []
    if any(_is_number(narrowed, leaf.type) for leaf in others if isinstance(leaf, IsNumber)):
        return None
    return [*narrowed, *(Not(leaf) for leaf in others if not _is_outside(leaf, narrowed))]


def any_of(terms: list[Predicate]) -> list[Predicate] | None:
    """Merges the terms of a disjunction about one property. None if one of them is always true."""
    positive, negative = positive_and_negative(terms)
    name = [*positive, *negative][0].name
    if not set(negative).isdisjoint(positive):
        return None
    if any(isinstance(leaf, IsPresent) for leaf in positive):
        return [IsPresent(name)] if not negative else None
    if len(negative) > 1:
        negative = [leaf for leaf in negative if not isinstance(leaf, IsPresent)]
    listed = frozenset().union(*(leaf.texts for leaf in positive if isinstance(leaf, TextIn)))
    excluded = _intersection(leaf.texts for leaf in negative if isinstance(leaf, TextIn))
    positive = _widened([leaf for leaf in positive if not isinstance(leaf, TextIn)])
    negative = [leaf for leaf in negative if not isinstance(leaf, TextIn)]
    if excluded is not None:
        kept = frozenset(text for text in excluded - listed if all_hold(text, negative, positive))
        if not kept:
            return None
        negative.append(TextIn(name, kept))
    elif listed:
        texts = frozenset(text for text in listed if all_hold(text, negative, positive))
        positive += [TextIn(name, texts)] if texts else []
    return [*positive, *(Not(leaf) for leaf in negative)]


def _intersection(sets: Iterable[frozenset[str]]) -> frozenset[str] | None:
    result: frozenset[str] | None = None
    for texts in sets:
        result = texts if result is None else result & texts
    return result


def _is_number(leaves: Iterable[PropertyLeaf], type_: NumberType) -> bool:
    """Whether a text for which all leaves are true parses as the type. Every int is also a long."""
    types = {leaf.type for leaf in leaves if isinstance(leaf, (IsNumber, NumberIs))}
    return type_ in types or (type_ is NumberType.LONG and NumberType.INT in types)


def _narrowed(leaves: list[PropertyLeaf]) -> list[PropertyLeaf] | None:
    """All of the distinct leaves without those that others imply; None if a range is empty. No leaf is a TextIn."""
    ranges = _narrowed_ranges([leaf for leaf in leaves if isinstance(leaf, NumberIs)])
    if ranges is None:
        return None
    kept = [leaf for leaf in leaves if not isinstance(leaf, (IsPresent, IsNumber, NumberIs))] + ranges
    for leaf in leaves:
        if isinstance(leaf, IsNumber) and not _is_number(kept, leaf.type):
            kept.append(leaf)
    return kept or leaves


def _narrowed_ranges(leaves: list[NumberIs]) -> list[PropertyLeaf] | None:
    kept: list[PropertyLeaf] = []
    for type_ in NumberType:
        same_type = [leaf for leaf in leaves if leaf.type is type_]
        narrow = _range(same_type) if len(same_type) > 1 else same_type
        if narrow is None:
            return None
        kept += narrow
    return kept


def _range(leaves: list[NumberIs]) -> list[PropertyLeaf] | None:
    """The tightest bounds of one number type."""
    name, type_ = leaves[0].name, leaves[0].type
    for leaf in leaves:
        if leaf.comparison is Comparison.EQUAL:
            return [leaf] if all(_covers(other, leaf) for other in leaves) else None
    lower = _tightest(leaves, _LOWER, 1)
    upper = _tightest(leaves, _UPPER, -1)
    if lower and upper:
        low, high = order(type_, lower.value), order(type_, upper.value)
        if low == high and not {lower.comparison, upper.comparison} & {Comparison.LESS, Comparison.GREATER}:
            return [NumberIs(name, type_, Comparison.EQUAL, lower.value)]
        if low >= high:
            return None
    return [leaf for leaf in (lower, upper) if leaf]


def _widened(leaves: list[PropertyLeaf]) -> list[PropertyLeaf]:
    """Any of the leaves, without those that imply other leaves."""
    kept = [leaf for leaf in leaves if not isinstance(leaf, NumberIs)]
    for leaf in leaves:
        if isinstance(leaf, IsNumber) and leaf.type is NumberType.INT and IsNumber(leaf.name, NumberType.LONG) in kept:
            kept.remove(leaf)
    for type_ in NumberType:
        ranges = [leaf for leaf in leaves if isinstance(leaf, NumberIs) and leaf.type is type_]
        wide = _tightest(ranges, _LOWER, -1), _tightest(ranges, _UPPER, 1)
        if not ranges or any(isinstance(leaf, IsNumber) and leaf.type is type_ for leaf in kept):
            continue
        if wide[0] and wide[1] and _meet(wide[0], wide[1]):
            kept.append(IsNumber(ranges[0].name, type_))
            continue
        bounds = [leaf for leaf in wide if leaf]
        points = [leaf for leaf in ranges if leaf.comparison is Comparison.EQUAL]
        kept += bounds + [leaf for leaf in points if not any(_covers(bound, leaf) for bound in bounds)]
    return kept


def _meet(lower: NumberIs, upper: NumberIs) -> bool:
    """Whether ``>= lower or <= upper`` is true for all numbers. Integers have closed bounds only."""
    low, high = order(lower.type, lower.value), order(upper.type, upper.value)
    if lower.type is not NumberType.DOUBLE:
        return low <= high + 1
    both_open = lower.comparison is Comparison.GREATER and upper.comparison is Comparison.LESS
    return low < high or (low == high and not both_open)


def _tightest(leaves: list[NumberIs], sides: tuple[Comparison, Comparison], sign: int) -> NumberIs | None:
    """The bound with the greatest (sign 1) or least (sign -1) value.

    If an open and a closed bound have the same value, a conjunction takes the open one and a disjunction the closed.
    """
    bounds = [leaf for leaf in leaves if leaf.comparison in sides]
    if len(bounds) < 2:
        return bounds[0] if bounds else None
    open_first = sign if sides is _LOWER else -sign

    def tightness(leaf: NumberIs) -> tuple[int, int]:
        is_open = leaf.comparison in (Comparison.LESS, Comparison.GREATER)
        return sign * order(leaf.type, leaf.value), open_first * is_open

    return max(bounds, key=tightness)


def _covers(leaf: NumberIs, point: NumberIs) -> bool:
    return COMPARE[leaf.comparison](order(point.type, point.value), order(leaf.type, leaf.value))


def _is_outside(leaf: PropertyLeaf, narrowed: list[PropertyLeaf]) -> bool:
    """Whether ``leaf`` excludes a number that is outside the range anyway."""
    return (
        isinstance(leaf, NumberIs)
        and leaf.comparison is Comparison.EQUAL
        and any(
            isinstance(bound, NumberIs) and bound.type is leaf.type and not _covers(bound, leaf) for bound in narrowed
        )
    )


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
        if all_of([*facts, term]) is None:
            return False
        return True if all_of([*facts, opposite(term)]) is None else None

    def _compound(self, term: And | Or) -> bool | None:
        """The value of a compound term whose operands are leaves."""
        values = {None if isinstance(inner, (And, Or)) else self.value(inner) for inner in term.terms}
        deciding = isinstance(term, Or)
        if deciding in values:
            return deciding
        return None if None in values else not deciding


_READABLE = 160
"""The characters of a sort key that are kept. A hash stands for all of a longer one."""
_MANY = 64
"""Terms with more terms of their own are not merged into others or simplified: expressions may have thousands."""
_CHEAP = (IsPresent, TextIn, IsTrueText)


class NormalFormBuilder(PredicateBuilder):
    """Builds predicates in normal form. It caches results: expressions that share one object compile faster."""

    def __init__(self) -> None:
        self._negations: dict[Predicate, Predicate] = {}
        self._keys: dict[Predicate, str] = {}

    def all_of(self, terms: Iterable[Predicate]) -> Predicate:
        return self._combined(And, Or, terms)

    def any_of(self, terms: Iterable[Predicate]) -> Predicate:
        return self._combined(Or, And, terms)

    def negation(self, predicate: Predicate) -> Predicate:
        if not isinstance(predicate, (And, Or)):
            return opposite(predicate)
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
    merge = all_of if kind is And else any_of
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
