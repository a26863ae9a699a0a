"""RocketMQ's SQL92 as a dialect of sqlglot: ``sqlglot.parse_one(text, read="rocketmq")``.

sqlglot's own tokenizer and parser accept and group other things, so both are replaced.
"""

from __future__ import annotations

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token

from filtering.sql92.syntax.parser import parse
from filtering.sql92.syntax.tokens import tokenize


class RocketMQ(Dialect):
    class Tokenizer(tokens.Tokenizer):
        def tokenize(self, sql: str) -> list[Token]:
            return tokenize(sql)

    class Parser(parser.Parser):
        def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
            """One syntax tree. Raises InvalidExpression where the broker refuses the expression."""
            return [parse(raw_tokens, sql)]
