"""The syntax tree of an expression, as the broker's parser builds it (org.apache.rocketmq.filter.expression).

Trees may be as deep as the text is long, so nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from filtering.java.numbers import INT_MAX, LONG_MAX
from filtering.predicate import Comparison, NumberType

_LONGEST = len(str(LONG_MAX))


class Number(NamedTuple):
    """A java.lang.Integer, Long or Double."""

    type: NumberType
    value: int | float

    def negated(self) -> Number:
        return Number(self.type, -self.value)


class Search(Enum):
    """The text searches; the value is the reserved word."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(slots=True, eq=False)
class Node:
    """``position``: the offset in the text of the operator, the literal or the name."""

    position: int

    @property
    def children(self) -> tuple[Node, ...]:
        return ()


@dataclass(slots=True, eq=False)
class Property(Node):
    name: str


@dataclass(slots=True, eq=False)
class TextLiteral(Node):
    value: str


@dataclass(slots=True, eq=False)
class NumberLiteral(Node):
    """``image`` is how the text spells the number."""

    image: str
    value: Number


@dataclass(slots=True, eq=False)
class Parentheses(Node):
    """Parentheses around an operator; they mean nothing to the broker."""

    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True, eq=False)
class Minus(Node):
    """A unary minus. A unary plus leaves no node."""

    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True, eq=False)
class BooleanNode(Node):
    """What RocketMQ calls a BooleanExpression, TRUE, FALSE and NULL included."""


@dataclass(slots=True, eq=False)
class BooleanLiteral(BooleanNode):
    value: bool


@dataclass(slots=True, eq=False)
class NullLiteral(BooleanNode):
    pass


@dataclass(slots=True, eq=False)
class Not(BooleanNode):
    """NOT before an operand; NOT BETWEEN, NOT IN and IS NOT NULL are ``Not`` of the positive form."""

    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True, eq=False)
class Binary(BooleanNode):
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return self.left, self.right


@dataclass(slots=True, eq=False)
class And(Binary):
    pass


@dataclass(slots=True, eq=False)
class Or(Binary):
    pass


@dataclass(slots=True, eq=False)
class Equal(Binary):
    pass


@dataclass(slots=True, eq=False)
class NotEqual(Binary):
    pass


@dataclass(slots=True, eq=False)
class Ordering(Binary):
    comparison: Comparison


@dataclass(slots=True, eq=False)
class IsNull(BooleanNode):
    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True, eq=False)
class Between(BooleanNode):
    operand: Node
    low: Node
    high: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return self.operand, self.low, self.high


@dataclass(slots=True, eq=False)
class In(BooleanNode):
    name: str
    texts: tuple[str, ...]


@dataclass(slots=True, eq=False)
class TextSearch(BooleanNode):
    """``negated``: the NOT form, which is no negation: both are FALSE where the operand is missing."""

    search: Search
    operand: Node
    text: str
    negated: bool

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


def inside(node: Node) -> Node:
    """The node without the parentheses around it."""
    while isinstance(node, Parentheses):
        node = node.operand
    return node


def walk(root: Node) -> Iterator[Node]:
    """The nodes of a tree, each before its children, from left to right."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def named_properties(root: Node) -> list[str]:
    """The properties that a tree names, in the order of the text, without repetition."""
    return list(dict.fromkeys(node.name for node in walk(root) if isinstance(node, (Property, In))))


def number(image: str) -> Number:
    """The value of a literal (ConstantExpression.createFromDecimal, createFloat): an Integer if it fits one,
    whatever the suffix. Raises ValueError for an integer above the greatest Long."""
    digits = image.rstrip("lL")
    if not digits.isdigit():
        return Number(NumberType.DOUBLE, float(image))
    if len(digits) > _LONGEST or (value := int(digits)) > LONG_MAX:
        raise ValueError("an integer must be at most 9223372036854775807")
    return Number(NumberType.INT if value <= INT_MAX else NumberType.LONG, value)
