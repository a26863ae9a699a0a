"""The two-valued predicate that an SQL92 expression or a tag subscription is lowered to.

Every leaf is a question about one message; the answer is never null and never an error. Nodes are interned: equal
predicates are one object. So predicates of any depth are compared and hashed at no cost, and a shared node is
evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from itertools import product
from typing import Any, ClassVar, TypeVar, dataclass_transform
from weakref import WeakValueDictionary

_Node = TypeVar("_Node")


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


class _Interned(type):
    _nodes: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()

    def __call__(cls, *values: Any) -> Any:
        key = (cls, *values)
        if values and type(values[-1]) is float:
            # In Python, 0.0 == -0.0 == 0 and NaN != NaN; to the broker they are different numbers, and NaN equals NaN.
            key = (cls, *values[:-1], values[-1].hex())
        node = cls._nodes.get(key)
        if node is None:
            node = cls._nodes[key] = super().__call__(*values)
        return node


@dataclass_transform(frozen_default=True, eq_default=False)
def _child(cls: type[_Node]) -> type[_Node]:
    return dataclass(frozen=True, eq=False, slots=True)(cls)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Predicate(metaclass=_Interned):
    """A node of a predicate: true or false for every message."""

    @property
    def operands(self) -> tuple[Predicate, ...]:
        return ()

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that this node itself reads."""
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        """A list of all nodes below, since pickle and copy cannot go as deep as a predicate."""
        numbers: dict[Predicate, int] = {}
        parts = []
        for node in postorder([self]):
            numbers[node] = len(numbers)
            values = [numbers[operand] for operand in node.operands]
            parts.append((type(node), values or [getattr(node, field.name) for field in fields(node)]))
        return _from_parts, (parts,)


@_child
class Constant(Predicate):
    value: bool


@_child
class Not(Predicate):
    operand: Predicate

    @property
    def operands(self) -> tuple[Predicate, ...]:
        return (self.operand,)


@_child
class _Combination(Predicate):
    terms: tuple[Predicate, ...]

    @property
    def operands(self) -> tuple[Predicate, ...]:
        return self.terms


@_child
class And(_Combination):
    """All terms are true."""


@_child
class Or(_Combination):
    """At least one term is true."""


@_child
class PropertyLeaf(Predicate):
    """A question about one property. The answer is false if the property is missing."""

    name: str

    @property
    def properties(self) -> tuple[str, ...]:
        return (self.name,)


@_child
class IsPresent(PropertyLeaf):
    """Whether the message has the property."""


@_child
class TextIn(PropertyLeaf):
    """The text is one of ``texts``. A set of one text means equality."""

    texts: frozenset[str]


@_child
class TextContains(PropertyLeaf):
    text: str


@_child
class TextStartsWith(PropertyLeaf):
    text: str


@_child
class TextEndsWith(PropertyLeaf):
    text: str


@_child
class IsTrueText(PropertyLeaf):
    """Whether the text is ``true`` in any case (java.lang.Boolean.valueOf)."""


@_child
class IsNumber(PropertyLeaf):
    """The text parses as the Java number type."""

    type: NumberType


@_child
class NumberIs(PropertyLeaf):
    """The text parses as ``type``, and its comparison with ``value`` (an int, or a float for DOUBLE) is true.

    Doubles compare as in java.lang.Double.compareTo: NaN equals itself and is the greatest, and -0.0 is less than 0.0.
    """

    type: NumberType
    comparison: Comparison
    value: int | float


@_child
class PropertyPairLeaf(Predicate):
    """A question about two properties. The answer is false if either is missing."""

    left: str
    right: str

    @property
    def properties(self) -> tuple[str, ...]:
        return (self.left, self.right)


@_child
class TextsEqual(PropertyPairLeaf):
    """Both texts are the same."""


@_child
class DoublesCompare(PropertyPairLeaf):
    """Both texts parse as doubles, and their comparison is true."""

    comparison: Comparison


@_child
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
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.operands))


def _from_parts(parts: Iterable[tuple[type[Predicate], list[Any]]]) -> Predicate:
    nodes: list[Predicate] = []
    for kind, values in parts:
        if kind is Not:
            nodes.append(Not(nodes[values[0]]))
        elif kind is And or kind is Or:
            nodes.append(kind(tuple(nodes[number] for number in values)))
        else:
            nodes.append(kind(*values))
    return nodes[-1]
