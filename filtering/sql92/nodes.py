"""The syntax tree of an expression, as the broker's parser builds it (org.apache.rocketmq.filter.expression).

A tree may be as deep as the text is long, so no function here recurses.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, TypeVar

from filtering.java import INT_MAX, LONG_MAX
from filtering.predicate import Comparison, NumberType
from filtering.sql92.tokens import string_literal

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
    """A node of the syntax tree. ``position``: the character offset of its operator, literal or name."""

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
    """A number as a literal. ``image`` is its spelling in the text."""

    image: str
    value: Number


@dataclass(slots=True, eq=False)
class Unary(Node):
    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True, eq=False)
class Parentheses(Unary):
    """Parentheses around an operator. They mean nothing to the broker."""


@dataclass(slots=True, eq=False)
class Minus(Unary):
    """A unary minus. A unary plus has no node."""


@dataclass(slots=True, eq=False)
class BooleanNode(Node):
    """A node that RocketMQ calls a BooleanExpression, including TRUE, FALSE and NULL."""


@dataclass(slots=True, eq=False)
class BooleanLiteral(BooleanNode):
    value: bool


@dataclass(slots=True, eq=False)
class NullLiteral(BooleanNode):
    pass


@dataclass(slots=True, eq=False)
class Not(BooleanNode, Unary):
    """NOT before an operand; NOT BETWEEN, NOT IN and IS NOT NULL are ``Not`` of the positive form."""


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
class IsNull(BooleanNode, Unary):
    pass


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
    """A text search. ``negated``: the NOT form; it is not a negation, since both are FALSE for a missing operand."""

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
    """The names of a tree's properties, in the order of the text, without repetition."""
    return list(dict.fromkeys(node.name for node in walk(root) if isinstance(node, (Property, In))))


def number(image: str) -> Number:
    """The value of a literal (ConstantExpression.createFromDecimal, createFloat).

    An integer that fits is an Integer, even with the suffix L. Raises ValueError if it is above the greatest Long.
    """
    digits = image.rstrip("lL")
    if not digits.isdigit():
        return Number(NumberType.DOUBLE, float(image))
    if len(digits) > _LONGEST or (value := int(digits)) > LONG_MAX:
        raise ValueError("an integer must be at most 9223372036854775807")
    return Number(NumberType.INT if value <= INT_MAX else NumberType.LONG, value)


class UnquotedText(NamedTuple):
    """A property ``text`` that is probably a value without quotes of the property ``name``.

    ``correction``: the tokens to write instead of it. ``is_alone``: it is not compared, as ``b`` in ``a = 'x' OR b``.
    """

    text: Property
    name: str
    correction: str
    is_alone: bool = False


def unquoted_texts(root: Node) -> list[UnquotedText]:
    """Properties that are probably texts without quotes.

    ``region = beijing`` compares two properties. Where two are meant, their names mostly share a word, as in
    ``price = oldPrice``. In ``region = beijing OR shanghai``, the last property may be another value of the first one.
    """
    unquoted = []
    last_compared: dict[Node, Node | None] = {}
    """By AND and OR, the comparison to which a property alone on its right belongs."""
    for node in reversed(list(walk(root))):
        if isinstance(node, (Equal, NotEqual)):
            compared = _compared_text(node)
            if compared is not None and isinstance(value := compared[1], Property):
                unquoted.append(UnquotedText(value, compared[0], string_literal(value.name)))
        elif isinstance(node, (And, Or)):
            left, right = inside(node.left), inside(node.right)
            before = right if not isinstance(right, Property) else left
            if isinstance(before, type(node)) and before is left:
                before = last_compared[before] or before
            is_same = isinstance(before, Equal if isinstance(node, Or) else NotEqual)
            last_compared[node] = before if is_same else None
            if is_same and isinstance(right, Property) and (compared := _compared_text(before)) is not None:
                operator = "=" if isinstance(node, Or) else "<>"
                correction = f"{compared[0]} {operator} {string_literal(right.name)}"
                unquoted.append(UnquotedText(right, compared[0], correction, is_alone=True))
    return sorted(unquoted, key=lambda unquoted_text: unquoted_text.text.position)


def _compared_text(node: Node) -> tuple[str, Node] | None:
    """The name of a property that is compared for equality with a text, with or without quotes, and that text."""
    if not isinstance(node, (Equal, NotEqual)):
        return None
    left, right = inside(node.left), inside(node.right)
    if isinstance(left, Property) and isinstance(right, Property):
        if _words(left) & _words(right):
            return None
        return (right.name, left) if right.name in ("TAGS", "KEYS") else (left.name, right)
    return (left.name, right) if isinstance(left, Property) and isinstance(right, TextLiteral) else None


def _words(node: Property) -> set[str]:
    """The words of three or more letters in a name, in small letters."""
    return {word.lower() for word in re.findall("[A-Z]?[a-z]{2,}|[A-Z]{3,}", node.name)} - {"is", "id"}


# Recursion of any depth, without Python's recursion limit.


_Result = TypeVar("_Result")

Recursion: TypeAlias = Generator[Any, Any, _Result]
"""A recursive computation: it yields each computation that it calls, receives its result, and returns its own."""


def computed(recursion: Recursion[_Result]) -> _Result:
    """The result of a recursive computation."""
    stack: list[Recursion[Any]] = [recursion]
    result: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as returned:
            stack.pop()
            result = returned.value
    value: _Result = result
    return value


# Writes a node of an expression as text with the same meaning.


def expression_text(root: Node, images: Mapping[Node, str] | None = None) -> str:
    """The node as text that compiles to the same tree. ``images``: replacements for nodes."""
    parts: list[str] = []
    stack: list[Node | str] = [root]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            parts.append(piece)
        elif images is not None and piece in images:
            parts.append(images[piece])
        else:
            stack += reversed(_pieces(piece))
    return "".join(parts)


def _pieces(node: Node) -> list[Node | str]:
    match node:
        case Property():
            return [node.name]
        case TextLiteral():
            return [string_literal(node.value)]
        case NumberLiteral():
            return [node.image]
        case BooleanLiteral():
            return ["TRUE" if node.value else "FALSE"]
        case NullLiteral():
            return ["NULL"]
        case Parentheses():
            return ["(", node.operand, ")"]
        case Minus():
            return ["- " if isinstance(node.operand, Minus) else "-", node.operand]
        case IsNull():
            return [node.operand, " IS NULL"]
        case Between():
            return _between(node, "")
        case In():
            return _in(node, "")
        case TextSearch():
            return [node.operand, _search(node.search, node.negated), string_literal(node.text)]
        case Not():
            return _negated(node)
        case Binary():
            return [node.left, f" {_operator(node)} ", node.right]
    raise TypeError(f"{type(node).__name__} is not a node of an expression")


def _operator(node: Binary) -> str:
    match node:
        case Or():
            return "OR"
        case And():
            return "AND"
        case Equal():
            return "="
        case NotEqual():
            return "<>"
        case Ordering():
            return node.comparison.value
    raise TypeError(f"{type(node).__name__} has no operator")


def _search(search: Search, negated: bool) -> str:
    return f" NOT {search.value} " if negated else f" {search.value} "


def _negated(node: Not) -> list[Node | str]:
    """NOT stands before a property, a boolean or parentheses. In any other case it is part of the operator."""
    match node.operand:
        case IsNull(operand=operand):
            return [operand, " IS NOT NULL"]
        case Between() as between:
            return _between(between, "NOT ")
        case In() as listed:
            return _in(listed, "NOT ")
    return ["NOT ", node.operand]


def _between(node: Between, negation: str) -> list[Node | str]:
    return [node.operand, f" {negation}BETWEEN ", node.low, " AND ", node.high]


def _in(node: In, negation: str) -> list[Node | str]:
    return [f"{node.name} {negation}IN ({', '.join(map(string_literal, node.texts))})"]


def is_combination(node: Node) -> bool:
    """Whether the node, without parentheses around it, combines others: AND, OR, NOT before parentheses or a NOT."""
    if isinstance(node, Not):
        return isinstance(node.operand, (Parentheses, Not))
    return isinstance(node, (And, Or))
