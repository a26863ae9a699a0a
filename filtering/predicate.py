"""The two-valued predicate that an SQL92 expression or a tag subscription is lowered to.

Every leaf is a question about one message; the answer is never null and never an error. Nodes are interned: equal
predicates are one object. So predicates of any depth are compared and hashed at no cost, and a shared node is
evaluated once.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field
from enum import Enum
from itertools import product
from typing import Any, ClassVar
from weakref import ref

from filtering.frozen import frozen
from filtering.java import double_order, parse_double, parse_int, parse_long


class NumberType(Enum):
    """The Java type as which a property's text is parsed."""

    __hash__ = object.__hash__

    INT = "int"
    LONG = "long"
    DOUBLE = "double"


class Comparison(Enum):
    """A comparison of numbers. The value is its sign in SQL92."""

    __hash__ = object.__hash__

    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


OPPOSITE = {
    Comparison.LESS: Comparison.GREATER_OR_EQUAL,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER,
    Comparison.GREATER: Comparison.LESS_OR_EQUAL,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS,
}
"""The comparison that holds for exactly the other numbers. NaN is greater than all others, as in Double.compare."""
TRUE_TEXTS = frozenset("".join(letters) for letters in product("tT", "rR", "uU", "eE"))
"""The texts for which :class:`IsTrueText` holds."""


class _Reference(ref["Predicate"]):
    """A weak reference to a node. ``key``: where ``_Interned`` keeps it."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


class _Interned(type):
    """Makes equal nodes one object. WeakValueDictionary does the same, but calls three functions for each new node."""

    _nodes: ClassVar[dict[tuple[Any, ...], _Reference]] = {}

    def __call__(cls, *values: Any) -> Any:
        key = (cls, *values)
        if values and type(values[-1]) is float:
            # In Python, 0.0 == -0.0 == 0 and NaN != NaN; to the broker they are different numbers, and NaN equals NaN.
            key = (cls, *values[:-1], values[-1].hex())
        known = _Interned._nodes.get(key)
        node = None if known is None else known()
        if node is None:
            node = super().__call__(*values)
            reference = _Interned._nodes[key] = _Reference(node, _forget)
            reference.key = key
        return node


def _forget(reference: _Reference) -> None:
    """Drops the key of a node that is gone, if no equal node has it now."""
    if _Interned._nodes.get(reference.key) is reference:
        del _Interned._nodes[reference.key]


class Predicate(metaclass=_Interned):
    """A node of a predicate: true or false for every message."""

    __slots__ = ("__weakref__",)
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def operands(self) -> tuple[Predicate, ...]:
        return ()

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that this node itself reads."""
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy cannot go as deep as a predicate."""
        return _from_json, (to_json([self]),)


@frozen(eq=False, slots=True)
class Constant(Predicate):
    value: bool


@frozen(eq=False, slots=True)
class Not(Predicate):
    operand: Predicate

    @property
    def operands(self) -> tuple[Predicate, ...]:
        return (self.operand,)


@frozen(eq=False, slots=True)
class _Combination(Predicate):
    terms: tuple[Predicate, ...]

    @property
    def operands(self) -> tuple[Predicate, ...]:
        return self.terms


@frozen(eq=False, slots=True)
class And(_Combination):
    """All terms are true."""


@frozen(eq=False, slots=True)
class Or(_Combination):
    """At least one term is true."""


@frozen(eq=False, slots=True)
class PropertyLeaf(Predicate):
    """A question about one property. The answer is false if the property is missing."""

    name: str

    @property
    def properties(self) -> tuple[str, ...]:
        return (self.name,)


@frozen(eq=False, slots=True)
class IsPresent(PropertyLeaf):
    """Whether the message has the property."""


@frozen(eq=False, slots=True)
class TextIn(PropertyLeaf):
    """The text is one of ``texts``. A set of one text means equality."""

    texts: frozenset[str]


@frozen(eq=False, slots=True)
class TextContains(PropertyLeaf):
    text: str


@frozen(eq=False, slots=True)
class TextStartsWith(PropertyLeaf):
    text: str


@frozen(eq=False, slots=True)
class TextEndsWith(PropertyLeaf):
    text: str


@frozen(eq=False, slots=True)
class IsTrueText(PropertyLeaf):
    """Whether the text is ``true`` in any case (java.lang.Boolean.valueOf)."""


@frozen(eq=False, slots=True)
class IsNumber(PropertyLeaf):
    """The text parses as the Java number type."""

    type: NumberType


@frozen(eq=False, slots=True)
class NumberIs(PropertyLeaf):
    """The text parses as ``type``, and its comparison with ``value`` (an int, or a float for DOUBLE) is true.

    Doubles compare as in java.lang.Double.compareTo: NaN equals itself and is the greatest, and -0.0 is less than 0.0.
    """

    type: NumberType
    comparison: Comparison
    value: int | float


@frozen(eq=False, slots=True)
class PropertyPairLeaf(Predicate):
    """A question about two properties. The answer is false if either is missing."""

    left: str
    right: str

    @property
    def properties(self) -> tuple[str, ...]:
        return (self.left, self.right)


@frozen(eq=False, slots=True)
class TextsEqual(PropertyPairLeaf):
    """Both texts are the same."""


@frozen(eq=False, slots=True)
class DoublesCompare(PropertyPairLeaf):
    """Both texts parse as doubles, and their comparison is true."""

    comparison: Comparison


@frozen(eq=False, slots=True)
class TagsCodeIn(Predicate):
    """The consume queue entry's tags code, cut to 32 bits, is one of ``codes``."""

    codes: frozenset[int]


TRUE = Constant(True)
FALSE = Constant(False)


def postorder(roots: Iterable[Predicate]) -> Iterator[Predicate]:
    """Every distinct node under ``roots`` once, operands before the nodes that use them."""
    seen: set[Predicate] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, operands_done = stack.pop()
        if operands_done:
            yield node
        elif node not in seen:
            seen.add(node)
            operands = node.operands
            if operands:
                stack.append((node, True))
                stack.extend([(operand, False) for operand in reversed(operands)])
            else:
                yield node


# Predicates as JSON.


def to_json(predicates: Sequence[Predicate]) -> str:
    """The nodes of some predicates, each after its operands, and the numbers of the predicates among them."""
    numbers: dict[Predicate, int] = {}
    parts: list[list[Any]] = []
    for node in postorder(predicates):
        numbers[node] = len(numbers)
        if operands := node.operands:
            parts.append([type(node).__name__, *[numbers[operand] for operand in operands]])
        else:
            parts.append([type(node).__name__, *[_plain(getattr(node, name)) for name in node.__dataclass_fields__]])
    return _encode([parts, [numbers[predicate] for predicate in predicates]])


def from_json(text: str) -> list[Predicate]:
    """The reverse of :func:`to_json`."""
    parts, numbers = json.loads(text)
    nodes: list[Predicate] = []
    for kind, *values in parts:
        nodes.append(_MADE_OF[kind](nodes, *values))
    return [nodes[number] for number in numbers]


def _from_json(text: str) -> Predicate:
    return from_json(text)[0]


def _plain(value: Any) -> Any:
    """A field of a leaf as JSON has it."""
    if isinstance(value, (str, int, float)):
        return value
    return sorted(value) if isinstance(value, frozenset) else value.value


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_TYPES = {type_.value: type_ for type_ in NumberType}
_COMPARISONS = {comparison.value: comparison for comparison in Comparison}
_MADE_OF: dict[str, Callable[..., Predicate]] = {
    "Constant": lambda _, value: Constant(value),
    "Not": lambda nodes, operand: Not(nodes[operand]),
    "And": lambda nodes, *terms: And(tuple([nodes[term] for term in terms])),
    "Or": lambda nodes, *terms: Or(tuple([nodes[term] for term in terms])),
    "IsPresent": lambda _, name: IsPresent(name),
    "TextIn": lambda _, name, texts: TextIn(name, frozenset(texts)),
    "TextContains": lambda _, name, text: TextContains(name, text),
    "TextStartsWith": lambda _, name, text: TextStartsWith(name, text),
    "TextEndsWith": lambda _, name, text: TextEndsWith(name, text),
    "IsTrueText": lambda _, name: IsTrueText(name),
    "IsNumber": lambda _, name, type_: IsNumber(name, _TYPES[type_]),
    "NumberIs": lambda _, name, type_, comparison, value: NumberIs(
        name, _TYPES[type_], _COMPARISONS[comparison], value
    ),
    "TextsEqual": lambda _, left, right: TextsEqual(left, right),
    "DoublesCompare": lambda _, left, right, comparison: DoublesCompare(left, right, _COMPARISONS[comparison]),
    "TagsCodeIn": lambda _, codes: TagsCodeIn(frozenset(codes)),
}
"""By its kind, a node of the nodes before it and its values."""


# Evaluates one predicate on one message: the reference for both executors, and the arithmetic of the normal form.


COMPARE: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def holds(predicate: Predicate, properties: Mapping[str, str], tags_code: int | None = None) -> bool:
    """Whether the predicate is true for a message with these properties. ``tags_code``: of its entry, if it has one."""
    values: dict[Predicate, bool] = {}
    for node in postorder([predicate]):
        match node:
            case Constant():
                value = node.value
            case Not():
                value = not values[node.operand]
            case And():
                value = all(values[term] for term in node.terms)
            case Or():
                value = any(values[term] for term in node.terms)
            case PropertyLeaf():
                value = node.name in properties and text_holds(node, properties[node.name])
            case PropertyPairLeaf():
                value = (
                    node.left in properties
                    and node.right in properties
                    and _texts_hold(node, properties[node.left], properties[node.right])
                )
            case TagsCodeIn():
                value = tags_code is not None and _to_int(tags_code) in node.codes
            case _:
                raise TypeError(f"{type(node).__name__} is not a predicate that can be evaluated")
        values[node] = value
    return values[predicate]


def text_holds(leaf: PropertyLeaf, text: str) -> bool:
    """Whether a leaf is true for a property with this text."""
    match leaf:
        case IsPresent():
            return True
        case TextIn():
            return text in leaf.texts
        case TextContains():
            return leaf.text in text
        case TextStartsWith():
            return text.startswith(leaf.text)
        case TextEndsWith():
            return text.endswith(leaf.text)
        case IsTrueText():
            return text in TRUE_TEXTS
        case IsNumber():
            return parse(leaf.type, text) is not None
        case NumberIs():
            number = parse(leaf.type, text)
            return number is not None and COMPARE[leaf.comparison](
                order(leaf.type, number), order(leaf.type, leaf.value)
            )
        case _:
            raise TypeError(f"{type(leaf).__name__} is not a leaf about one property")


def all_hold(text: str | None, positive: Sequence[PropertyLeaf], negative: Iterable[PropertyLeaf]) -> bool:
    """Whether all of ``positive`` are true and all of ``negative`` false for a property's text (None: missing)."""
    if text is None:
        return not positive
    return all(text_holds(leaf, text) for leaf in positive) and not any(text_holds(leaf, text) for leaf in negative)


def parse(type_: NumberType, text: str) -> int | float | None:
    """The text as a Java number, or None if it is not one."""
    match type_:
        case NumberType.INT:
            return parse_int(text)
        case NumberType.LONG:
            return parse_long(text)
        case NumberType.DOUBLE:
            return parse_double(text)


def order(type_: NumberType, number: int | float) -> int:
    """A key that orders numbers of the type as Java's compareTo."""
    return double_order(number) if type_ is NumberType.DOUBLE else int(number)


def _texts_hold(leaf: PropertyPairLeaf, left: str, right: str) -> bool:
    match leaf:
        case TextsEqual():
            return left == right
        case DoublesCompare():
            numbers = parse_double(left), parse_double(right)
            if numbers[0] is None or numbers[1] is None:
                return False
            return COMPARE[leaf.comparison](double_order(numbers[0]), double_order(numbers[1]))
        case _:
            raise TypeError(f"{type(leaf).__name__} is not a leaf about two properties")


def _to_int(tags_code: int) -> int:
    """Java's (int) of a long."""
    return (tags_code + 2**31) % 2**32 - 2**31


# Terms: the leaves of a predicate, and negated leaves.


def without_not(node: Predicate) -> Predicate:
    """The operand of a negation; any other node itself."""
    return node.operand if isinstance(node, Not) else node


def opposite(node: Predicate) -> Predicate:
    """The predicate that is true for exactly the other messages."""
    if isinstance(node, Constant):
        return FALSE if node.value else TRUE
    return node.operand if isinstance(node, Not) else Not(node)


def positive_and_negative(terms: Iterable[Predicate]) -> tuple[list[PropertyLeaf], list[PropertyLeaf]]:
    """The distinct leaves that are true if all terms are, and those that are then false.

    ``terms``: leaves about one property each, and negations of such leaves.
    """
    positive: list[PropertyLeaf] = []
    negative: list[PropertyLeaf] = []
    for term in dict.fromkeys(terms):
        leaf = without_not(term)
        assert isinstance(leaf, PropertyLeaf)
        (positive if leaf is term else negative).append(leaf)
    return positive, negative
