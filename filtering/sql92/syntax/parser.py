"""The parser of RocketMQ's SQL92: it turns tokens into a syntax tree, without recursion.

From loosely to tightly: OR, AND, then = <> IS, then > >= < <= BETWEEN IN CONTAINS STARTSWITH
ENDSWITH, then unary + - NOT; all of them left-associative. (To brokers before 5.1.3, CONTAINS, STARTSWITH
and ENDSWITH are names.) The parser stops after the first
complete expression: it looks at one more token and ignores the rest.
"""

from __future__ import annotations

from typing import NamedTuple

from filtering.java.strings import has_half_a_pair
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.syntax import checks, nodes, tokens
from filtering.sql92.syntax.advice import advice_at, sentence, unknown
from filtering.sql92.syntax.binary_nodes import ORDERINGS, binary_node
from filtering.sql92.syntax.nodes import Node
from filtering.sql92.syntax.tokens import END, STRING, UNKNOWN, Token, string_value, tokenize

_PARENTHESIS, _OR, _AND, _EQUALITY, _COMPARISON, _UNARY = range(6)
_BINARY = {"OR": _OR, "AND": _AND, "=": _EQUALITY, "<>": _EQUALITY, **dict.fromkeys(ORDERINGS, _COMPARISON)}
_SEARCHES = {search.value: search for search in nodes.Search}
_COMPARISONS = frozenset([*ORDERINGS, *_SEARCHES, "NOT", "BETWEEN", "IN"])
_ATOMS = (
    nodes.Parentheses, nodes.Property, nodes.TextLiteral, nodes.NumberLiteral, nodes.BooleanLiteral, nodes.NullLiteral,
)  # fmt: skip
_PREFIXES = frozenset(["NOT", "-", "+", "("])
LONGEST = 262_144
"""The greatest length of an expression in characters. A broker has no such limit."""


class SyntaxTree(NamedTuple):
    """``ignored``: the offset of the input after the first complete expression, which the broker ignores, or None."""

    root: Node
    ignored: int | None


class _Operator(NamedTuple):
    """An operator or an opening parenthesis whose operands are not complete yet."""

    precedence: int
    token: Token
    low: Node | None = None
    """The lower bound of a BETWEEN whose upper bound is not parsed yet."""
    negated: bool = False


def parse(text: str, version: RocketMQVersion = NEWEST) -> SyntaxTree:
    """Parses an expression as a broker of a version does.

    Raises InvalidExpression if the broker refuses it, if it is longer than LONGEST, or if it is not encodable as UTF-8.
    """
    if len(text) > LONGEST:
        raise InvalidExpression(f"An expression must be at most {LONGEST:,} characters long.", text, LONGEST)
    if has_half_a_pair(text):
        raise InvalidExpression("An expression must not contain half of a surrogate pair.", text, 0)
    return _Parser(text, version).parse()


class _Parser:
    """A precedence parser with two stacks: operands that are parsed, and operators that wait for one more."""

    def __init__(self, text: str, version: RocketMQVersion) -> None:
        self._text = text
        self._version = version
        self._tokens = tokenize(text, version)
        self._next = 0
        self._operands: list[Node] = []
        self._operators: list[_Operator] = []
        self._wants_operand = True
        self._wants_comparison = True

    def parse(self) -> SyntaxTree:
        while self._wants_operand:
            self._read_operand()
            while self._take_operator():
                pass
        token = self._tokens[self._next]
        self._reduce(_OR)
        if self._operators and token.kind == END:
            raise self._error("The parenthesis here is never closed", self._operators[-1].token)
        if self._operators:
            raise self._error("An operator or ) is expected here", token)
        root = self._operands.pop()
        checks.boolean(root, self._text, end=token.start, version=self._version)
        return SyntaxTree(root, None if token.kind == END else token.start)

    def _read_operand(self) -> None:
        """Prefixes, opening parentheses, and one literal or property."""
        token = self._take()
        while token.kind in _PREFIXES:
            if token.kind == "(":
                self._operators.append(_Operator(_PARENTHESIS, token))
            elif token.kind != "+":
                self._operators.append(_Operator(_UNARY, token))
            token = self._take()
        self._operands.append(self._atom(token))
        self._finish_operand()

    def _atom(self, token: Token) -> Node:
        kind, text, start = token
        match kind:
            case tokens.NAME:
                return nodes.Property(start, text)
            case tokens.STRING:
                return nodes.TextLiteral(start, string_value(text))
            case tokens.NUMBER:
                return nodes.NumberLiteral(start, text, checks.number(token, self._text))
            case "TRUE" | "FALSE":
                return nodes.BooleanLiteral(start, kind == "TRUE")
            case "NULL":
                return nodes.NullLiteral(start)
        advice = ": write = once" if kind == "=" and self._text[start - 1 : start] == "=" else ""
        raise self._error(f"A property, a literal or a parenthesis is expected here{advice}", token)

    def _finish_operand(self) -> None:
        """Applies NOT and minus to the operand after them, then builds the comparison that the operand completes."""
        self._wants_operand = False
        self._wants_comparison = True
        operators, operands = self._operators, self._operands
        while operators and operators[-1].precedence == _UNARY:
            token = operators.pop().token
            if token.kind == "NOT":
                checks.boolean(operands[-1], self._text, token)
                operands.append(nodes.Not(token.start, operands.pop()))
            else:
                operands.append(nodes.Minus(token.start, operands.pop()))
        if not operators or operators[-1].precedence != _COMPARISON:
            return
        if operators[-1].token.kind != "BETWEEN":
            self._reduce(_COMPARISON)
        elif operators[-1].low is None:
            self._take("AND", "The lower bound of BETWEEN must be followed by AND")
            operators.append(operators.pop()._replace(low=operands.pop()))
            self._wants_operand = True
        else:
            self._reduce_between()

    def _take_operator(self) -> bool:
        """Takes the next operator. False if the next token starts no operator, or if an operand must come first."""
        if self._wants_operand:
            return False
        token = self._tokens[self._next]
        kind = token.kind
        if not self._wants_comparison and kind in _COMPARISONS:
            return False
        if kind in _BINARY:
            precedence = _BINARY[kind]
            self._next += 1
            self._reduce(precedence)
            self._operators.append(_Operator(precedence, token))
            self._wants_operand = True
            return False
        if kind == ")":
            return self._close()
        if kind == "IS":
            self._next += 1
            self._is_null(token)
            return True
        negated = kind == "NOT"
        if negated:
            self._next += 1
            kind = self._tokens[self._next].kind
        if kind == "BETWEEN":
            self._operators.append(_Operator(_COMPARISON, self._take(), negated=negated))
            self._wants_operand = True
            return False
        if kind == "IN":
            self._in_list(self._take(), negated)
            return True
        if kind in _SEARCHES:
            self._search(self._take(), negated)
            return True
        if negated:
            or_search = ", IN or a text search" if self._version.has_text_searches else " or IN"
            raise self._error(f"NOT after an operand must be followed by BETWEEN{or_search}", token)
        if kind == UNKNOWN:
            raise self._error("", token)
        return False

    def _close(self) -> bool:
        """Close a parenthesis; one that was never opened ends the expression."""
        self._reduce(_OR)
        if not self._operators:
            return False
        self._next += 1
        opening = self._operators.pop().token
        node = self._operands[-1]
        if not isinstance(node, _ATOMS):
            self._operands[-1] = nodes.Parentheses(opening.start, node)
        self._finish_operand()
        return True

    def _is_null(self, token: Token) -> None:
        negated = self._tokens[self._next].kind == "NOT"
        self._next += negated
        self._take("NULL", "IS must be followed by NULL or NOT NULL")
        self._reduce(_EQUALITY)
        self._wants_comparison = False
        self._push(nodes.IsNull(token.start, self._operands.pop()), negated)

    def _in_list(self, token: Token, negated: bool) -> None:
        self._take("(", "IN must be followed by a list of strings in parentheses")
        texts = [self._string("IN takes string literals only")]
        while self._tokens[self._next].kind == ",":
            self._next += 1
            texts.append(self._string("A string literal is expected after the comma"))
        self._take(")", "The list of IN must go on with a comma or end with a parenthesis")
        name = checks.property_name(self._operands.pop(), self._text, token)
        self._push(nodes.In(token.start, name, tuple(texts)), negated)

    def _search(self, token: Token, negated: bool) -> None:
        text = self._string(f"{token.kind} takes one string literal")
        self._push(nodes.TextSearch(token.start, _SEARCHES[token.kind], self._operands.pop(), text, negated))

    def _reduce(self, precedence: int) -> None:
        """Builds the pending binary operations that bind at least as tightly as ``precedence``."""
        operators, operands = self._operators, self._operands
        while operators and operators[-1].precedence >= precedence:
            token = operators.pop().token
            right = operands.pop()
            operands.append(binary_node(operands.pop(), token, right, self._text))

    def _reduce_between(self) -> None:
        _, token, low, negated = self._operators.pop()
        high, value = self._operands.pop(), self._operands.pop()
        assert low is not None
        for node in (value, low, high):
            checks.ordered(node, self._text, token, (value, low, high))
        if not negated:
            checks.between(low, high, self._text, token)
        self._push(nodes.Between(token.start, value, low, high), negated)

    def _push(self, node: Node, negated: bool = False) -> None:
        self._operands.append(nodes.Not(node.position, node) if negated else node)

    def _string(self, problem: str) -> str:
        return string_value(self._take(STRING, problem).text)

    def _take(self, kind: str | None = None, problem: str = "") -> Token:
        token = self._tokens[self._next]
        if kind is not None and token.kind != kind:
            raise self._error(problem, token, has_advice=kind in (STRING, "NULL"))
        if token.kind != END:
            self._next += 1
        return token

    def _error(self, problem: str, token: Token, has_advice: bool = True) -> InvalidExpression:
        if token.kind == UNKNOWN:
            problem = unknown(self._text, token.start, self._version)
        elif token.kind == END:
            problem += ", but the expression ends"
        elif has_advice and (advice := advice_at(self._text, token.start, self._version)):
            problem += f". {sentence(advice)[:-1]}"
        return InvalidExpression(problem + ".", self._text, token.start)
