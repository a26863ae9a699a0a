"""The tokens of RocketMQ's SQL92 (filter/parser/SelectorParser.jj)."""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

# The first alternative that matches is also the longest, as JavaCC demands.
_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\n\r\f]+)
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<number>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+
               | 0 | [1-9][0-9]*[lL]?)
    | (?P<string>'[^']*(?:''[^']*)*')
    | (?P<comment>--|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    | (?P<operator><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)
_OPERATORS = {
    "=": TokenType.EQ,
    "<>": TokenType.NEQ,
    ">": TokenType.GT,
    ">=": TokenType.GTE,
    "<": TokenType.LT,
    "<=": TokenType.LTE,
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    ",": TokenType.COMMA,
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
}
_RESERVED = {
    "NOT": TokenType.NOT,
    "AND": TokenType.AND,
    "OR": TokenType.OR,
    "BETWEEN": TokenType.BETWEEN,
    "IN": TokenType.IN,
    "TRUE": TokenType.TRUE,
    "FALSE": TokenType.FALSE,
    "NULL": TokenType.NULL,
    "IS": TokenType.IS,
    "CONTAINS": TokenType.OPERATOR,
    "STARTSWITH": TokenType.OPERATOR,
    "ENDSWITH": TokenType.OPERATOR,
}


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text``; ``start`` and ``end`` are offsets of the first character and behind the last.

    What is no token ends the list as one UNKNOWN: the broker fails only if its parser gets there.
    """
    tokens: list[Token] = []
    last_line_end = max(text.rfind("\n"), text.rfind("\r"))
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            tokens.append(_token(TokenType.UNKNOWN, text[position], position))
            break
        image, kind = match[0], match.lastgroup
        if image == "--":
            if position < last_line_end:
                position = _line_end(text, position)
                continue
            image = "-"
            kind = "operator"
        if kind == "name":
            tokens.append(_token(_RESERVED.get(image.upper(), TokenType.VAR), image, position))
        elif kind == "operator":
            tokens.append(_token(_OPERATORS[image], image, position))
        elif kind == "number":
            tokens.append(_token(TokenType.NUMBER, image, position))
        elif kind == "string":
            tokens.append(_token(TokenType.STRING, image, position))
        position += len(image)
    return tokens


def string_value(image: str) -> str:
    return image[1:-1].replace("''", "'")


def _token(kind: TokenType, image: str, position: int) -> Token:
    return Token(kind, image, start=position, end=position + len(image))


def _line_end(text: str, position: int) -> int:
    return min(end for end in (text.find("\n", position), text.find("\r", position)) if end >= 0)
