"""The tokens of RocketMQ's SQL92 (filter/parser/SelectorParser.jj)."""

from __future__ import annotations

import re
from typing import NamedTuple

from filtering.rocketmq_version import NEWEST, RocketMQVersion

NAME, NUMBER, STRING, UNKNOWN, END = "name", "number", "string", "unknown", "end"

# The first alternative that matches is also the longest, as JavaCC demands.
_TOKEN = re.compile(
    r"""
    [ \t\n\r\f]*
    (?:
      (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<number>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+
               | 0 | [1-9][0-9]*[lL]?)
    | (?P<string>'[^']*(?:''[^']*)*')
    | (?P<comment>--|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    | (?P<operator><>|>=|<=|[=<>(),+-])
    | (?P<end>\Z)
    | (?P<unknown>.)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
TEXT_SEARCHES = frozenset(["CONTAINS", "STARTSWITH", "ENDSWITH"])
"""Words that older brokers do not reserve (RocketMQVersion.has_text_searches)."""
_RESERVED = frozenset(["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"])


class Token(NamedTuple):
    """``kind`` is NAME, NUMBER, STRING, UNKNOWN or END. For an operator or a reserved word, it is the text in capitals.

    ``start`` is the offset of the first character.
    """

    kind: str
    text: str
    start: int


def tokenize(text: str, version: RocketMQVersion = NEWEST) -> list[Token]:
    """The tokens of ``text``. The last one is END, or UNKNOWN if no token starts with a character.

    The broker fails at an UNKNOWN token only if its parser reaches it.
    """
    reserved = _RESERVED | TEXT_SEARCHES if version.has_text_searches else _RESERVED
    tokens: list[Token] = []
    last_line_end = max(text.rfind("\n"), text.rfind("\r"))
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        assert match is not None
        kind = match.lastgroup
        assert kind is not None
        image = match[kind]
        position = match.end()
        start = position - len(image)
        if kind == NAME:
            word = image.upper()
            tokens.append(Token(word if word in reserved else NAME, image, start))
        elif kind == "operator":
            tokens.append(Token(image, image, start))
        elif kind != "comment":
            tokens.append(Token(kind, image, start))
            if kind in (END, UNKNOWN):
                return tokens
        elif image == "--":
            if start < last_line_end:
                position = _line_end(text, start)
            else:
                tokens.append(Token("-", "-", start))
                position = start + 1


def string_value(image: str) -> str:
    return image[1:-1].replace("''", "'")


def string_literal(value: str) -> str:
    """The literal of a text; :func:`string_value` reads it back."""
    return "'" + value.replace("'", "''") + "'"


def _line_end(text: str, position: int) -> int:
    return min(end for end in (text.find("\n", position), text.find("\r", position)) if end >= 0)


def text_search_words(text: str) -> list[str]:
    """The TEXT_SEARCHES in a text, as operators or names."""
    return list(dict.fromkeys(token.kind for token in tokenize(text) if token.kind in TEXT_SEARCHES))
