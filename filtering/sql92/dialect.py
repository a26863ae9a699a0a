"""RocketMQ's SQL92 as a dialect of sqlglot. Importing this module registers it.

``sqlglot.parse_one(text, read="rocketmq")`` returns a MessageFilter with a tree of sqlglot's nodes; the dialect
``rocketmq, version=4.9.7`` reads as a broker of that version does. Its method ``sql("rocketmq")`` returns the text.
No other dialect can generate a MessageFilter, because none has the broker's NULLs and errors.
``filtering.sql92.compile(text).spark_predicate()`` returns its Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp, generator, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, UnsupportedError
from sqlglot.tokenizer_core import Token

from filtering.predicate import Comparison
from filtering.rocketmq_version import RocketMQVersion
from filtering.sql92 import nodes
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.nodes import Node, Search, Steps, run
from filtering.sql92.parser import parse


class MessageFilter(exp.Expression, exp.Func):
    """The root of a parsed expression; ``this`` is the expression."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}

    @classmethod
    def sql_names(cls) -> list[str]:
        """Raises UnsupportedError. Only dialects that do not know the node call this method."""
        raise UnsupportedError(
            "Only the dialect rocketmq writes a RocketMQ filter: NULL, errors and comparisons are the broker's own. "
            "filtering.sql92.compile(text).spark_predicate() is the same filter in Spark SQL."
        )


class RocketMQ(Dialect):
    class Tokenizer(tokens.Tokenizer):
        def tokenize(self, sql: str) -> list[Token]:
            """An empty list: the parser reads the text itself."""
            return []

    class Parser(parser.Parser):
        def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
            """A list with one tree. Raises ParseError if the broker refuses the expression."""
            try:
                # Without the setting, sqlglot's version is greater than any.
                root = parse(sql, RocketMQVersion(*self.dialect.version)).root
            except InvalidExpression as error:
                raise ParseError(str(error)) from error
            return [MessageFilter(this=run(_tree(root)))]

    class Generator(generator.Generator):
        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **generator.Generator.TRANSFORMS,
            MessageFilter: lambda self, node: self.sql(node, "this"),
            exp.Not: lambda self, node: _not_sql(self, node),
            exp.Contains: lambda self, node: _search_sql(self, node, ""),
            exp.StartsWith: lambda self, node: _search_sql(self, node, ""),
            exp.EndsWith: lambda self, node: _search_sql(self, node, ""),
        }


_SEARCHES: dict[Search, type[exp.Expr]] = {
    Search.CONTAINS: exp.Contains,
    Search.STARTS_WITH: exp.StartsWith,
    Search.ENDS_WITH: exp.EndsWith,
}
_WORDS = {kind: search.value for search, kind in _SEARCHES.items()}
_ORDERINGS: dict[Comparison, type[exp.Expr]] = {
    Comparison.LESS: exp.LT,
    Comparison.LESS_OR_EQUAL: exp.LTE,
    Comparison.GREATER: exp.GT,
    Comparison.GREATER_OR_EQUAL: exp.GTE,
}
_BUILDERS: dict[type[Node], Callable[[Any, list[exp.Expr]], exp.Expr]] = {
    nodes.Property: lambda node, _: _column(node.name),
    nodes.TextLiteral: lambda node, _: exp.Literal.string(node.value),
    nodes.NumberLiteral: lambda node, _: exp.Literal(this=node.image, is_string=False),
    nodes.BooleanLiteral: lambda node, _: exp.Boolean(this=node.value),
    nodes.NullLiteral: lambda node, _: exp.Null(),
    nodes.Parentheses: lambda node, parts: exp.Paren(this=parts[0]),
    nodes.Minus: lambda node, parts: exp.Neg(this=parts[0]),
    nodes.Not: lambda node, parts: exp.Not(this=parts[0]),
    nodes.And: lambda node, parts: exp.And(this=parts[0], expression=parts[1]),
    nodes.Or: lambda node, parts: exp.Or(this=parts[0], expression=parts[1]),
    nodes.Equal: lambda node, parts: exp.EQ(this=parts[0], expression=parts[1]),
    nodes.NotEqual: lambda node, parts: exp.NEQ(this=parts[0], expression=parts[1]),
    nodes.Ordering: lambda node, parts: _ORDERINGS[node.comparison](this=parts[0], expression=parts[1]),
    nodes.IsNull: lambda node, parts: exp.Is(this=parts[0], expression=exp.Null()),
    nodes.Between: lambda node, parts: exp.Between(this=parts[0], low=parts[1], high=parts[2]),
    nodes.In: lambda node, _: exp.In(this=_column(node.name), expressions=list(map(exp.Literal.string, node.texts))),
    nodes.TextSearch: lambda node, parts: _search(node, parts[0]),
}


def _tree(node: Node) -> Steps[exp.Expr]:
    parts = []
    for child in node.children:
        parts.append((yield _tree(child)))
    return _BUILDERS[type(node)](node, parts)


def _column(name: str) -> exp.Expr:
    return exp.Column(this=exp.Identifier(this=name, quoted=False))


def _search(node: nodes.TextSearch, operand: exp.Expr) -> exp.Expr:
    search = _SEARCHES[node.search](this=operand, expression=exp.Literal.string(node.text))
    return exp.Not(this=search) if node.negated else search


def _not_sql(self: generator.Generator, node: exp.Expr) -> str:
    """Puts NOT inside BETWEEN, IN, IS NULL and the text searches: before them it would bind to their operand only."""
    operand = node.this
    match operand:
        case exp.Is():
            return f"{self.sql(operand, 'this')} IS NOT NULL"
        case exp.In():
            return f"{self.sql(operand, 'this')} NOT IN ({self.expressions(operand, flat=True)})"
        case exp.Between():
            bounds = f"{self.sql(operand, 'low')} AND {self.sql(operand, 'high')}"
            return f"{self.sql(operand, 'this')} NOT BETWEEN {bounds}"
        case exp.Contains() | exp.StartsWith() | exp.EndsWith():
            return _search_sql(self, operand, "NOT ")
    return f"NOT {self.sql(operand)}"


def _search_sql(self: generator.Generator, node: exp.Expr, negation: str) -> str:
    return f"{self.sql(node, 'this')} {negation}{_WORDS[type(node)]} {self.sql(node, 'expression')}"
