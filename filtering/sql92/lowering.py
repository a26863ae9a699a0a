"""Turns a syntax tree into two-valued predicates, one for each of the outcomes TRUE, FALSE and ERROR.

The broker evaluates an expression in three-valued logic, in order, and may fail on the way. The matcher can only AND,
OR and negate. So each node of the tree is lowered to a predicate for each outcome: "the broker's result of this node is
TRUE". The outcomes exclude each other; if none of the predicates is true, the result is NULL. A group receives the
messages for which the predicate of TRUE is true, and evaluation errors are counted by that of ERROR.

    ``price > 50``         TRUE: price is a number above 50. FALSE: a number up to 50. ERROR: present, but no number.
    ``NOT (price > 50)``   the same with TRUE and FALSE exchanged. A missing price gives NULL, not TRUE.
    ``a > 1 OR b > 2``     TRUE: a > 1, or (b > 2, and a > 1 does not fail). ERROR: a > 1 fails, or (b > 2 fails, and
                           a > 1 is not TRUE).

- :class:`Lowering` walks the tree: a rule for each kind of node (_LEAVES, _RULES), results cached by node and outcome.
- AND and OR are *chains*, whose operands are evaluated in order until one decides or fails (``decided``, ``failed``).
- Comparisons first look at their *operands*, whose types are known from the tree: a property is text, a minus before
  anything but a number is NULL, and any other operand is a literal or a boolean. Two values that are not NULL are
  compared by ``values_equal``, ``property_equals``, ``properties_equal`` and ``ordered``. ``equal`` adds NULL.
- A PredicateBuilder combines predicates: NormalFormBuilder, so that equal predicates are one object, or a faster one.
- A tree may be as deep as the text is long, so rules are generators that :func:`filtering.sql92.nodes.computed` drives.

Most expressions have no ERROR that matters, and their predicates look like hand-written ones.
The evaluator in :mod:`filtering.sql92.reference` follows the broker's code instead; tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from filtering.java import double_order
from filtering.predicate import (
    COMPARE,
    FALSE,
    OPPOSITE,
    TRUE,
    TRUE_TEXTS,
    And,
    Comparison,
    DoublesCompare,
    IsNumber,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Predicate,
    PropertyLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
    parse,
    text_holds,
)
from filtering.sql92 import nodes
from filtering.sql92.nodes import (
    BooleanNode,
    Minus,
    Node,
    NullLiteral,
    Number,
    NumberLiteral,
    Parentheses,
    Property,
    Recursion,
    Search,
    TextLiteral,
    computed,
    inside,
)
from filtering.sql92.normal_form import PredicateBuilder, number_is, present_but_not

# Chains.


_NESTED = 8
"""A chain of more steps is split in halves: predicates that nest deeply are slow to combine."""


def decided(builder: PredicateBuilder, deciding: Sequence[Predicate], failing: Sequence[Predicate]) -> Predicate:
    """True if an operand decides the chain (TRUE for OR, FALSE for AND) and no operand before it fails.

    ``deciding[i]`` is true if operand i decides, ``failing[i]`` if it fails. They exclude each other. So an operand
    joins the step before it if nothing fails there, or what fails here: that did not fail if the operand decides.
    A failure is tested once.
    """
    steps: list[tuple[list[Predicate], Predicate]] = []
    seen: set[Predicate] = {FALSE}
    for decides, fails in zip(deciding, failing, strict=True):
        if steps and steps[-1][1] in (FALSE, fails):
            steps[-1][0].append(decides)
            steps[-1] = steps[-1][0], FALSE if fails in seen and steps[-1][1] is FALSE else fails
        else:
            steps.append(([decides], FALSE if fails in seen else fails))
        seen.add(fails)
    return _first(builder, [(builder.any_of(deciders), fails) for deciders, fails in steps])


def failed(builder: PredicateBuilder, deciding: Sequence[Predicate], failing: Sequence[Predicate]) -> Predicate:
    """True if an operand fails, unless one before it decides. One that fails like an earlier one only decides."""
    steps: list[tuple[Predicate, list[Predicate]]] = []
    seen: set[Predicate] = {FALSE}
    for decides, fails in zip(deciding, failing, strict=True):
        if steps and fails in seen:
            steps[-1][1].append(decides)
        else:
            steps.append((fails, [decides]))
        seen.add(fails)
    return _first(builder, [(fails, builder.any_of(deciders)) for fails, deciders in steps])


def _first(builder: PredicateBuilder, steps: list[tuple[Predicate, Predicate]]) -> Predicate:
    """True if ``wanted`` of a step ``(wanted, ending)`` is true and ``ending`` is false in all steps before it."""
    if len(steps) > _NESTED:
        middle = len(steps) // 2
        ending = builder.any_of(end for _, end in steps[:middle])
        later = builder.all_of([builder.negation(ending), _first(builder, steps[middle:])])
        return builder.any_of([_first(builder, steps[:middle]), later])
    result = steps[-1][0]
    for wanted, ending in reversed(steps[:-1]):
        result = builder.any_of([wanted, builder.all_of([builder.negation(ending), result])])
    return result


# Outcomes.


class EvaluationOutcome(Enum):
    """What the evaluation of an expression gives. NULL is left out: it is the outcome if none of these is."""

    __hash__ = object.__hash__

    TRUE = "TRUE"
    FALSE = "FALSE"
    ERROR = "ERROR"

    @property
    def negated(self) -> EvaluationOutcome:
        """The outcome of x if this is the outcome of NOT x."""
        return _NEGATED[self]


_NEGATED = {
    EvaluationOutcome.TRUE: EvaluationOutcome.FALSE,
    EvaluationOutcome.FALSE: EvaluationOutcome.TRUE,
    EvaluationOutcome.ERROR: EvaluationOutcome.ERROR,
}

Lower: TypeAlias = Callable[[Node, EvaluationOutcome], Recursion[Predicate]]
"""Computes the predicate that is true if a node has an outcome."""


# Operands: is one NULL, not NULL, or does it fail?


class Value(NamedTuple):
    """A literal. The value of a number includes its minus."""

    value: str | Number


class Nothing(NamedTuple):
    """NULL. ``evaluated`` (if any) is evaluated before, and may fail."""

    evaluated: BooleanNode | None = None


Operand: TypeAlias = Property | Value | BooleanNode | Nothing
"""A NULL literal is always Nothing, never a BooleanNode."""


def operand(node: Node) -> Operand:
    """The operand that a node is, without its parentheses and with its minuses applied."""
    minus = negative = False
    while isinstance(node, (Parentheses, Minus)):
        if isinstance(node, Minus):
            minus, negative = True, not negative
        node = node.operand
    match node:
        case NumberLiteral(value=value):
            return Value(value.negated() if negative else value)
        case Property():
            return Nothing() if minus else node
        case TextLiteral(value=text):
            return Nothing() if minus else Value(text)
        case NullLiteral():
            return Nothing()
        case BooleanNode():
            return Nothing(node) if minus else node
    raise TypeError(f"{type(node).__name__} is not an operand")


def is_null(builder: PredicateBuilder, lower: Lower, value: Operand) -> Recursion[Predicate]:
    """True if the operand is evaluated without a failure, and is NULL."""
    match value:
        case Property():
            return Not(IsPresent(value.name))
        case Value():
            return FALSE
        case BooleanNode():
            not_null = yield from is_not_null(builder, lower, value)
            return builder.negation(builder.any_of([not_null, (yield from lower(value, EvaluationOutcome.ERROR))]))
        case Nothing():
            return builder.negation((yield from operand_fails(lower, value)))


def is_not_null(builder: PredicateBuilder, lower: Lower, value: Operand) -> Recursion[Predicate]:
    """True if the operand is evaluated without a failure, and is not NULL."""
    match value:
        case Property():
            return IsPresent(value.name)
        case Value():
            return TRUE
        case BooleanNode():
            true = yield from lower(value, EvaluationOutcome.TRUE)
            return builder.any_of([true, (yield from lower(value, EvaluationOutcome.FALSE))])
        case Nothing():
            return FALSE


def operand_fails(lower: Lower, value: Operand) -> Recursion[Predicate]:
    """True if the evaluation of the operand fails."""
    node = value.evaluated if isinstance(value, Nothing) else value
    return (yield from lower(node, EvaluationOutcome.ERROR)) if isinstance(node, BooleanNode) else FALSE


# Comparisons of two values that are not NULL.


_FLIPPED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
_REFLEXIVE = (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)


def values_equal(left: str | Number, right: str | Number, outcome: EvaluationOutcome) -> Predicate:
    """Compare two literals. The type of a number decides how a string is parsed."""
    if isinstance(left, str) and isinstance(right, str):
        result = _outcome(left == right)
    else:
        type_ = next(side.type for side in (left, right) if isinstance(side, Number))
        numbers = _to_number(left, type_), _to_number(right, type_)
        if numbers[0] is None or numbers[1] is None:
            result = EvaluationOutcome.ERROR
        else:
            result = _outcome(_numbers_compare(numbers[0], Comparison.EQUAL, numbers[1]))
    return TRUE if result is outcome else FALSE


def property_equals(name: str, value: str | Number, outcome: EvaluationOutcome) -> Predicate:
    """Compare a property with a literal. The result is in normal form."""
    if isinstance(value, Number):
        if outcome is EvaluationOutcome.ERROR:
            return _not_a_number(name, value.type)
        equal: Predicate = NumberIs(name, value.type, Comparison.EQUAL, value.value)
        return equal if outcome is EvaluationOutcome.TRUE else And((IsNumber(name, value.type), Not(equal)))
    if outcome is EvaluationOutcome.ERROR:
        return FALSE
    listed = TextIn(name, frozenset([value]))
    return listed if outcome is EvaluationOutcome.TRUE else present_but_not(listed)


def properties_equal(builder: PredicateBuilder, left: str, right: str, outcome: EvaluationOutcome) -> Predicate:
    """Compare two properties that are present, as texts."""
    both = [IsPresent(left), IsPresent(right)]
    equal = TextsEqual(*sorted((left, right))) if left != right else IsPresent(left)
    match outcome:
        case EvaluationOutcome.TRUE:
            return equal
        case EvaluationOutcome.FALSE:
            return builder.all_of([*both, Not(equal)])
        case EvaluationOutcome.ERROR:
            return FALSE


def ordered(
    builder: PredicateBuilder,
    left: Property | Value,
    comparison: Comparison,
    right: Property | Value,
    outcome: EvaluationOutcome,
) -> Predicate:
    """Compare two values as numbers. A number literal decides the type; two properties are doubles."""
    match left, right:
        case Property(), Value(value=Number() as number):
            return _property_ordered(left.name, comparison, number, outcome)
        case Value(value=Number() as number), Property():
            return _property_ordered(right.name, _FLIPPED[comparison], number, outcome)
        case Property(), Property():
            if left.name > right.name:
                left, right, comparison = right, left, _FLIPPED[comparison]
            return _properties_ordered(builder, left.name, comparison, right.name, outcome)
        case Value(value=Number() as first), Value(value=Number() as second):
            return TRUE if outcome is _outcome(_numbers_compare(first, comparison, second)) else FALSE
    raise AssertionError("the grammar refuses to order anything else")


def _outcome(holds: bool) -> EvaluationOutcome:
    return EvaluationOutcome.TRUE if holds else EvaluationOutcome.FALSE


def _to_number(value: str | Number, type_: NumberType) -> Number | None:
    if isinstance(value, Number):
        return value
    number = parse(type_, value)
    return None if number is None else Number(type_, number)


def _numbers_compare(left: Number, comparison: Comparison, right: Number) -> bool:
    if NumberType.DOUBLE in (left.type, right.type):
        return COMPARE[comparison](double_order(float(left.value)), double_order(float(right.value)))
    return COMPARE[comparison](left.value, right.value)


def _property_ordered(name: str, comparison: Comparison, number: Number, outcome: EvaluationOutcome) -> Predicate:
    match outcome:
        case EvaluationOutcome.TRUE:
            return number_is(name, number.type, comparison, number.value)
        case EvaluationOutcome.FALSE:
            return number_is(name, number.type, OPPOSITE[comparison], number.value)
        case EvaluationOutcome.ERROR:
            return _not_a_number(name, number.type)


def _not_a_number(name: str, type_: NumberType) -> Predicate:
    """The property is present, but its text is not a number of the type. The result is in normal form."""
    return present_but_not(IsNumber(name, type_))


def _properties_ordered(
    builder: PredicateBuilder, left: str, comparison: Comparison, right: str, outcome: EvaluationOutcome
) -> Predicate:
    numbers = [IsNumber(left, NumberType.DOUBLE), IsNumber(right, NumberType.DOUBLE)]
    if outcome is EvaluationOutcome.ERROR:
        both = [IsPresent(left), IsPresent(right)]
        return builder.all_of([*both, builder.negation(builder.all_of(numbers))])
    if outcome is EvaluationOutcome.FALSE:
        comparison = OPPOSITE[comparison]
    if left == right:
        return numbers[0] if comparison in _REFLEXIVE else FALSE
    return DoublesCompare(left, right, comparison)


# Equality and IS NULL, with operands that may be NULL or booleans.


def equal(
    builder: PredicateBuilder, lower: Lower, left: Operand, right: Operand, outcome: EvaluationOutcome
) -> Recursion[Predicate]:
    """Both sides are evaluated. Two NULLs are equal. NULL on the left only gives NULL, on the right only FALSE."""
    if isinstance(left, Property) and isinstance(right, Value):
        return property_equals(left.name, right.value, outcome)
    not_null = yield from _not_null_equal(builder, lower, left, right, outcome)
    if outcome is EvaluationOutcome.ERROR:
        return builder.any_of(
            [(yield from operand_fails(lower, left)), (yield from operand_fails(lower, right)), not_null]
        )
    left_side = is_null if outcome is EvaluationOutcome.TRUE else is_not_null
    right_null = [(yield from left_side(builder, lower, left)), (yield from is_null(builder, lower, right))]
    return builder.any_of([not_null, builder.all_of(right_null)])


def _not_null_equal(
    builder: PredicateBuilder, lower: Lower, left: Operand, right: Operand, outcome: EvaluationOutcome
) -> Recursion[Predicate]:
    """True if neither side is NULL and the comparison has the outcome."""
    match left, right:
        case Property(), Property():
            return properties_equal(builder, left.name, right.name, outcome)
        case (Property() as named, Value() as literal) | (Value() as literal, Property() as named):
            return property_equals(named.name, literal.value, outcome)
        case Value(), Value():
            return values_equal(left.value, right.value, outcome)
        case BooleanNode(), Value(value=Number()):
            return (yield from is_not_null(builder, lower, left)) if outcome is EvaluationOutcome.FALSE else FALSE
        case BooleanNode(), (Property() | Value()):
            left_not_null = yield from is_not_null(builder, lower, left)
            both = [left_not_null, (yield from is_not_null(builder, lower, right))]
            return builder.all_of(both) if outcome is EvaluationOutcome.ERROR else FALSE
        case Value(value=Number()), BooleanNode():
            return (yield from is_not_null(builder, lower, right)) if outcome is EvaluationOutcome.FALSE else FALSE
        case ((Property() | Value() | BooleanNode()), BooleanNode()) if outcome is not EvaluationOutcome.ERROR:
            true, false = yield from _as_boolean(lower, left)
            same = yield from lower(right, outcome)
            other = yield from lower(right, outcome.negated)
            return builder.any_of([builder.all_of([true, same]), builder.all_of([false, other])])
    return FALSE


def _as_boolean(lower: Lower, value: Property | Value | BooleanNode) -> Recursion[tuple[Predicate, Predicate]]:
    """Predicates for the value on the left of a boolean: it is true, and it is false."""
    match value:
        case Property(name=name):
            return IsTrueText(name), present_but_not(IsTrueText(name))
        case Value(value=text):
            return (TRUE, FALSE) if text in TRUE_TEXTS else (FALSE, TRUE)
        case BooleanNode():
            return (yield from lower(value, EvaluationOutcome.TRUE)), (yield from lower(value, EvaluationOutcome.FALSE))


# The walk over the tree.


_Part: TypeAlias = Callable[[EvaluationOutcome], Recursion[Predicate]]


class Lowering:
    """Lowers one syntax tree. Results are cached by node and outcome."""

    def __init__(self, root: Node, builder: PredicateBuilder) -> None:
        self._root = root
        self._builder = builder
        self._known: dict[tuple[Node, EvaluationOutcome], Predicate] = {}

    def predicate(self, outcome: EvaluationOutcome) -> Predicate:
        """True exactly if the broker's evaluation of the expression has this outcome."""
        return computed(self._lower(self._root, outcome))

    def _lower(self, node: Node, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        leaf = _LEAVES.get(type(node))
        if leaf is not None:
            return leaf(node, outcome)
        known = self._known.get((node, outcome))
        if known is None:
            known = self._known[node, outcome] = yield _RULES[type(node)](self, node, outcome)
        return known

    def _parentheses(self, node: nodes.Parentheses, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        return (yield from self._lower(inside(node), outcome))

    def _logic(self, node: nodes.And | nodes.Or, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        deciding = EvaluationOutcome.TRUE if isinstance(node, nodes.Or) else EvaluationOutcome.FALSE
        return (yield from self._chain(deciding, [partial(self._lower, part) for part in _parts(node)], outcome))

    def _chain(
        self, deciding: EvaluationOutcome, parts: list[_Part], outcome: EvaluationOutcome
    ) -> Recursion[Predicate]:
        """A chain of parts. The first part whose outcome is ``deciding`` decides the chain."""
        if outcome is deciding.negated:
            return self._builder.all_of((yield from _lower_all(parts, outcome)))
        if outcome is deciding:
            fails = yield from _lower_all(parts[:-1], EvaluationOutcome.ERROR)
            decides = yield from _lower_all(parts, deciding)
            return decided(self._builder, decides, [*fails, FALSE])
        fails = yield from _lower_all(parts, EvaluationOutcome.ERROR)
        if {FALSE, fails[0]}.issuperset(fails):
            return fails[0]
        last = max(fails.index(failing) for failing in {*fails} - {FALSE})
        decides = yield from _lower_all(parts[:last], deciding)
        return failed(self._builder, [*decides, FALSE], fails[: last + 1])

    def _not(self, node: nodes.Not, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        return (yield from self._lower(node.operand, outcome.negated))

    def _search(self, node: nodes.TextSearch, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        searched = operand(node.operand)
        failing = (yield from operand_fails(self._lower, searched)) if node.text else FALSE
        if outcome is EvaluationOutcome.ERROR:
            return failing
        true = self._search_is_true(node, searched)
        return (
            true if outcome is EvaluationOutcome.TRUE else self._builder.negation(self._builder.any_of([true, failing]))
        )

    def _search_is_true(self, node: nodes.TextSearch, searched: Operand) -> Predicate:
        """True if a search is TRUE: never for an empty search text, or an operand that is not a text."""
        if node.text and isinstance(searched, Property):
            leaf = _SEARCHES[node.search](searched.name, node.text)
            return present_but_not(leaf) if node.negated else leaf
        if node.text and isinstance(searched, Value) and isinstance(searched.value, str):
            is_match = text_holds(_SEARCHES[node.search]("", node.text), searched.value)
            return FALSE if is_match is node.negated else TRUE
        return FALSE

    def _ordering(self, node: nodes.Ordering, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        return (yield from self._ordered(operand(node.left), node.comparison, operand(node.right), outcome))

    def _between(self, node: nodes.Between, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        value, low, high = map(operand, node.children)
        above = partial(self._ordered, value, Comparison.GREATER_OR_EQUAL, low)
        below = partial(self._ordered, value, Comparison.LESS_OR_EQUAL, high)
        return (yield from self._chain(EvaluationOutcome.FALSE, [above, below], outcome))

    def _ordered(
        self, left: Operand, comparison: Comparison, right: Operand, outcome: EvaluationOutcome
    ) -> Recursion[Predicate]:
        """If the left side is NULL, the outcome is NULL, and the right side is not evaluated."""
        if isinstance(left, (Property, Value)) and isinstance(right, (Property, Value)):
            return ordered(self._builder, left, comparison, right, outcome)
        if outcome is not EvaluationOutcome.ERROR:
            return FALSE
        left_fails = yield from operand_fails(self._lower, left)
        right_fails = yield from operand_fails(self._lower, right)
        left_not_null = yield from is_not_null(self._builder, self._lower, left)
        return self._builder.any_of([left_fails, self._builder.all_of([left_not_null, right_fails])])

    def _equal(self, node: nodes.Equal, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        left, right = operand(node.left), operand(node.right)
        return (yield from equal(self._builder, self._lower, left, right, outcome))

    def _not_equal(self, node: nodes.NotEqual, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        left, right = operand(node.left), operand(node.right)
        return (yield from equal(self._builder, self._lower, left, right, outcome.negated))

    def _is_null(self, node: nodes.IsNull, outcome: EvaluationOutcome) -> Recursion[Predicate]:
        return (yield from equal(self._builder, self._lower, operand(node.operand), Nothing(), outcome))


def _parts(node: nodes.And | nodes.Or) -> list[Node]:
    """The operands of nested ANDs, or ORs, from left to right: both are associative, errors included."""
    kind, parts = type(node), []
    stack: list[Node] = [node]
    while stack:
        part = inside(stack.pop())
        if isinstance(part, kind):
            stack += [part.right, part.left]
        else:
            parts.append(part)
    return parts


def _lower_all(parts: Iterable[_Part], outcome: EvaluationOutcome) -> Recursion[list[Predicate]]:
    predicates = []
    for part in parts:
        predicates.append((yield from part(outcome)))
    return predicates


def _property(node: Property, outcome: EvaluationOutcome) -> Predicate:
    """A property used as a boolean is FALSE if it is present."""
    return IsPresent(node.name) if outcome is EvaluationOutcome.FALSE else FALSE


def _boolean(node: nodes.BooleanLiteral, outcome: EvaluationOutcome) -> Predicate:
    return TRUE if outcome is (EvaluationOutcome.TRUE if node.value else EvaluationOutcome.FALSE) else FALSE


def _null(node: nodes.NullLiteral, outcome: EvaluationOutcome) -> Predicate:
    return FALSE


def _in(node: nodes.In, outcome: EvaluationOutcome) -> Predicate:
    if outcome is EvaluationOutcome.ERROR:
        return FALSE
    listed = TextIn(node.name, frozenset(node.texts))
    return listed if outcome is EvaluationOutcome.TRUE else present_but_not(listed)


_SEARCHES: dict[Search, Callable[[str, str], PropertyLeaf]] = {
    Search.CONTAINS: TextContains,
    Search.STARTS_WITH: TextStartsWith,
    Search.ENDS_WITH: TextEndsWith,
}
_LEAVES: dict[type[Node], Callable[[Any, EvaluationOutcome], Predicate]] = {
    Property: _property,
    nodes.BooleanLiteral: _boolean,
    nodes.NullLiteral: _null,
    nodes.In: _in,
}
_RULES: dict[type[Node], Callable[[Lowering, Any, EvaluationOutcome], Recursion[Predicate]]] = {
    nodes.Parentheses: Lowering._parentheses,
    nodes.And: Lowering._logic,
    nodes.Or: Lowering._logic,
    nodes.Not: Lowering._not,
    nodes.TextSearch: Lowering._search,
    nodes.Equal: Lowering._equal,
    nodes.NotEqual: Lowering._not_equal,
    nodes.IsNull: Lowering._is_null,
    nodes.Between: Lowering._between,
    nodes.Ordering: Lowering._ordering,
}
