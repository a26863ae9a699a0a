"""RocketMQ's SQL92 grammar: tokens to a syntax tree, without recursion.

From loosely to tightly: OR, AND, then = <> IS, then > >= < <= BETWEEN IN CONTAINS STARTSWITH
ENDSWITH, then unary + - NOT; all of them left-associative. The parser stops after the first
complete expression: it looks at one more token and leaves the rest alone.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from filtering.sql92.errors import InvalidExpression
from filtering.sql92.syntax import checks
from filtering.sql92.syntax.nodes import NotFound
from filtering.sql92.syntax.tokens import string_value

_OR, _AND, _EQUALITY, _COMPARISON, _UNARY = range(1, 6)
_PARENTHESIS = 0
_BINARY = {
    TokenType.OR: (_OR, exp.Or),
    TokenType.AND: (_AND, exp.And),
    TokenType.EQ: (_EQUALITY, exp.EQ),
    TokenType.NEQ: (_EQUALITY, exp.NEQ),
    TokenType.GT: (_COMPARISON, exp.GT),
    TokenType.GTE: (_COMPARISON, exp.GTE),
    TokenType.LT: (_COMPARISON, exp.LT),
    TokenType.LTE: (_COMPARISON, exp.LTE),
}
_COMPARISONS = {
    TokenType.GT,
    TokenType.GTE,
    TokenType.LT,
    TokenType.LTE,
    TokenType.NOT,
    TokenType.BETWEEN,
    TokenType.IN,
    TokenType.OPERATOR,
}
_SEARCHES = {"CONTAINS": exp.Contains, "STARTSWITH": exp.StartsWith, "ENDSWITH": exp.EndsWith}
_END = TokenType.SENTINEL


class _Operator(NamedTuple):
    precedence: int
    token: Token
    low: exp.Expr | None = None
    """The lower bound of a BETWEEN that waits for its upper one."""
    negated: bool = False


def parse(tokens: list[Token], text: str) -> exp.Expr:
    """The syntax tree; ``meta["ignored"]`` of its root is the offset of input that the broker ignores.

    Raises InvalidExpression where the broker refuses the expression.
    """
    return _Parser(tokens, text).parse()


class _Parser:
    def __init__(self, tokens: list[Token], text: str) -> None:
        self._text = text
        self._tokens = [*tokens, Token(_END, "", start=len(text), end=len(text))]
        self._next = 0
        self._operands: list[exp.Expr] = []
        self._operators: list[_Operator] = []

    def parse(self) -> exp.Expr:
        while True:
            self._read_operand()
            while self._operator_follows():
                pass
            if self._wants_operand:
                continue
            token = self._tokens[self._next]
            self._reduce(_OR)
            if self._operators:
                self._fail("The parenthesis here is never closed", self._operators[-1].token)
            root = self._operands.pop()
            checks.boolean(root, self._text)
            if token.token_type != _END:
                root.meta["ignored"] = token.start
            return root

    def _read_operand(self) -> None:
        """Prefixes, opening parentheses, and one literal or property."""
        while True:
            token = self._take()
            kind = token.token_type
            if kind in (TokenType.NOT, TokenType.DASH):
                self._operators.append(_Operator(_UNARY, token))
            elif kind == TokenType.L_PAREN:
                self._operators.append(_Operator(_PARENTHESIS, token))
            elif kind != TokenType.PLUS:
                break
        self._operands.append(self._atom(token))
        self._unary_complete()

    def _atom(self, token: Token) -> exp.Expr:
        match token.token_type:
            case TokenType.VAR:
                node: exp.Expr = exp.Column(this=exp.Identifier(this=token.text, quoted=True))
            case TokenType.STRING:
                node = exp.Literal(this=string_value(token.text), is_string=True)
            case TokenType.NUMBER:
                checks.number(token, self._text)
                node = exp.Literal(this=token.text, is_string=False)
            case TokenType.TRUE | TokenType.FALSE:
                node = exp.Boolean(this=token.token_type == TokenType.TRUE)
            case TokenType.NULL:
                node = exp.Null()
            case _:
                self._fail("A property, a literal or a parenthesis is expected here", token)
        node.meta["start"] = token.start
        return node

    def _unary_complete(self) -> None:
        """Apply what binds a unary operand: its prefixes, and the comparison it ends."""
        self._wants_operand = False
        self._wants_comparison = True
        operators, operands = self._operators, self._operands
        while operators and operators[-1].precedence == _UNARY:
            token = operators.pop().token
            if token.token_type == TokenType.NOT:
                checks.boolean(operands[-1], self._text, token)
                operands.append(self._at(exp.Not(this=operands.pop()), token))
            else:
                operands.append(self._at(exp.Neg(this=operands.pop()), token))
        if not operators or operators[-1].precedence != _COMPARISON:
            return
        if operators[-1].token.token_type != TokenType.BETWEEN:
            self._reduce(_COMPARISON)
        elif operators[-1].low is None:
            self._take(TokenType.AND, "The lower bound of BETWEEN must be followed by AND")
            operators.append(operators.pop()._replace(low=operands.pop()))
            self._wants_operand = True
        else:
            self._reduce_between()

    def _operator_follows(self) -> bool:
        """Take the next operator; false if the next token starts none, or an operand must come first."""
        if self._wants_operand:
            return False
        token = self._tokens[self._next]
        kind = token.token_type
        precedence = _BINARY[kind][0] if kind in _BINARY else _COMPARISON
        if precedence == _COMPARISON and not self._wants_comparison and kind in _COMPARISONS:
            return False
        if kind in _BINARY:
            self._next += 1
            self._reduce(precedence)
            self._operators.append(_Operator(precedence, token))
            self._wants_operand = True
            return False
        if kind == TokenType.R_PAREN:
            return self._close()
        if kind == TokenType.IS:
            self._next += 1
            self._is_null(token)
            return True
        negated = kind == TokenType.NOT
        if negated:
            self._next += 1
            kind = self._tokens[self._next].token_type
        match kind:
            case TokenType.BETWEEN:
                self._operators.append(_Operator(_COMPARISON, self._take(), negated=negated))
                self._wants_operand = True
                return False
            case TokenType.IN:
                self._in_list(self._take(), negated)
            case TokenType.OPERATOR:
                self._search(self._take(), negated)
            case _ if negated:
                self._fail("NOT after an operand must be followed by BETWEEN, IN or a text search", token)
            case TokenType.UNKNOWN:
                self._fail("", token)
            case _:
                return False
        return True

    def _close(self) -> bool:
        """Close a parenthesis; one that was never opened ends the expression."""
        self._reduce(_OR)
        if not self._operators:
            return False
        self._next += 1
        opening = self._operators.pop().token
        node = self._operands[-1]
        if not isinstance(node, (exp.Paren, exp.Column, exp.Literal, exp.Boolean, exp.Null)):
            self._operands[-1] = self._at(exp.Paren(this=node), opening)
        self._unary_complete()
        return True

    def _is_null(self, token: Token) -> None:
        negated = self._tokens[self._next].token_type == TokenType.NOT
        self._next += negated
        self._take(TokenType.NULL, "IS must be followed by NULL or NOT NULL")
        self._reduce(_EQUALITY)
        self._wants_comparison = False
        test = self._at(exp.Is(this=self._operands.pop(), expression=exp.Null()), token)
        self._operands.append(self._negated(test, negated, token))

    def _in_list(self, token: Token, negated: bool) -> None:
        self._take(TokenType.L_PAREN, "IN must be followed by a list of strings in parentheses")
        texts = [self._string("IN takes string literals only")]
        while self._tokens[self._next].token_type == TokenType.COMMA:
            self._next += 1
            texts.append(self._string("A string literal is expected after the comma"))
        self._take(TokenType.R_PAREN, "The list of IN must go on with a comma or end with a parenthesis")
        operand = self._operands.pop()
        checks.property_(operand, self._text, token)
        member = self._at(exp.In(this=operand, expressions=texts), token)
        self._operands.append(self._negated(member, negated, token))

    def _search(self, token: Token, negated: bool) -> None:
        word = token.text.upper()
        text = self._string(f"{word} takes one string literal")
        found = self._at(_SEARCHES[word](this=self._operands.pop(), expression=text), token)
        self._operands.append(self._at(NotFound(this=found), token) if negated else found)

    def _reduce(self, precedence: int) -> None:
        """Build the pending binary operations that bind at least as tightly."""
        operators, operands = self._operators, self._operands
        while operators and operators[-1].precedence >= precedence:
            token = operators.pop().token
            right, left = operands.pop(), operands.pop()
            kind = _BINARY[token.token_type][1]
            checks.operands(kind, left, right, self._text, token)
            operands.append(self._at(kind(this=left, expression=right), token))

    def _reduce_between(self) -> None:
        _, token, low, negated = self._operators.pop()
        high, value = self._operands.pop(), self._operands.pop()
        assert low is not None
        checks.between(value, low, high, negated, self._text, token)
        test = self._at(exp.Between(this=value, low=low, high=high), token)
        self._operands.append(self._negated(test, negated, token))

    def _negated(self, node: exp.Expr, negated: bool, token: Token) -> exp.Expr:
        return self._at(exp.Not(this=node), token) if negated else node

    def _string(self, problem: str) -> exp.Literal:
        return exp.Literal(this=string_value(self._take(TokenType.STRING, problem).text), is_string=True)

    def _at(self, node: exp.Expr, token: Token) -> exp.Expr:
        node.meta["start"] = token.start
        return node

    def _take(self, kind: TokenType | None = None, problem: str = "") -> Token:
        token = self._tokens[self._next]
        if kind is not None and token.token_type != kind:
            self._fail(problem, token)
        if token.token_type != _END:
            self._next += 1
        return token

    def _fail(self, problem: str, token: Token) -> NoReturn:
        if token.token_type == TokenType.UNKNOWN:
            problem = checks.unknown(self._text, token.start)
        elif token.token_type == _END:
            problem += ", but the expression ends"
        raise InvalidExpression(problem + ".", self._text, token.start)
