"""RocketMQ's SQL92 as a dialect of sqlglot, which finds it by the entry point ``rocketmq``.

``sqlglot.transpile("price > 50.0", read="rocketmq", write="spark")`` returns the predicate in Spark's SQL: true for
the messages that a broker delivers, false for all others. ``rocketmq, version=4.9.7`` reads as a broker of that version
does; ``rocketmq, properties=m.props`` says where the map of properties is. ``write`` is one of the dialects in
:data:`filtering.sql92.predicate_sql.ENGINES`; no other one can say what a broker does, and raises UnsupportedError.

``sqlglot.parse_one(text, read="rocketmq")`` returns a RocketMQFilter with a tree of sqlglot's nodes, which may be part
of a query. In RocketMQ's own dialect, it is written as it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, ClassVar, cast

from sqlglot import exp, generator, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, UnsupportedError
from sqlglot.tokenizer_core import Token, TokenType

from filtering.predicate import Predicate
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92 import nodes
from filtering.sql92.compiled import compile
from filtering.sql92.nodes import Node, Recursion, Search, computed
from filtering.sql92.parser import InvalidExpression, on_one_line, parse
from filtering.sql92.predicate_sql import COMPARISONS, ENGINES, PredicateWriter, Properties
from filtering.sql92.tokens import NAME, NUMBER, STRING, string_value, tokenize


class RocketMQFilter(exp.Expression, exp.Func):
    """The root of a parsed expression. ``this`` is the expression, ``version`` that of the broker that reads it.

    ``properties`` is the SQL text of the map of properties.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "version": True, "properties": True}

    @classmethod
    def sql_names(cls) -> list[str]:
        """Raises UnsupportedError. Only dialects that do not know the node call this method."""
        raise UnsupportedError(f"A RocketMQ filter can be written for {', '.join(ENGINES)}; this is another dialect")


class DataFusion(Dialect):
    """Apache DataFusion, which sqlglot does not have. Its predicates differ from sqlglot's own SQL in one operator."""

    class Generator(generator.Generator):
        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **generator.Generator.TRANSFORMS,
            # DataFusion reads a IS NOT DISTINCT FROM b AND c as a IS NOT DISTINCT FROM (b AND c).
            exp.NullSafeEQ: lambda self, node: f"({self.binary(node, 'IS NOT DISTINCT FROM')})",
        }


class RocketMQ(Dialect):
    SUPPORTED_SETTINGS = {*Dialect.SUPPORTED_SETTINGS, "properties"}  # noqa: RUF012

    class Tokenizer(tokens.Tokenizer):
        def tokenize(self, sql: str) -> list[Token]:
            """The tokens up to the first character that begins none. The parser reads the text itself."""
            read = tokenize(sql, _version(self.dialect))
            return [_token(token.kind, token.text, token.start, sql) for token in read[:-1]]

    class Parser(parser.Parser):
        def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
            """A list with one tree. Raises ParseError if the broker refuses the expression."""
            _teach_engines()
            version = _version(self.dialect)
            try:
                root = parse(sql, version).root
            except InvalidExpression as error:
                raise _parse_error(error) from error
            properties = self.dialect.settings.get("properties", "properties")
            return [RocketMQFilter(this=computed(_tree(root)), version=str(version), properties=properties)]

        def parse_into(
            self, expression_types: exp.IntoType, raw_tokens: list[Token], sql: str | None = None
        ) -> list[exp.Expr | None]:
            """As :meth:`parse`: whatever is asked for, the text is a filter."""
            return self.parse(raw_tokens, sql or "")

    class Generator(generator.Generator):
        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **generator.Generator.TRANSFORMS,
            RocketMQFilter: lambda self, node: self.sql(node, "this"),
            exp.Not: lambda self, node: _not_sql(self, node),
            exp.Contains: lambda self, node: _search_sql(self, node, ""),
            exp.StartsWith: lambda self, node: _search_sql(self, node, ""),
            exp.EndsWith: lambda self, node: _search_sql(self, node, ""),
        }


def predicate_sql(predicate: Predicate, dialect: str, properties: Properties) -> str:
    """The SQL text of a predicate in a dialect. Raises UnsupportedError if the dialect cannot say it."""
    if dialect not in ENGINES:
        RocketMQFilter.sql_names()
    writer = _writer(dialect, properties) if isinstance(properties, str) else _new_writer(dialect, properties)
    return writer.write(predicate)


def _new_writer(dialect: str, properties: Properties) -> PredicateWriter:
    return PredicateWriter(Dialect.get_or_raise(dialect).generator(), dialect, properties)


_writer = lru_cache(maxsize=4)(_new_writer)
"""A writer keeps the texts of properties: with one, texts of many predicates take less time."""


@cache
def _teach_engines() -> None:
    """Gives the dialects of engines generators that also write a RocketMQFilter."""
    for name in ENGINES:
        dialect = type(Dialect.get_or_raise(name))
        known = dialect.generator_class
        transforms = {**known.TRANSFORMS, RocketMQFilter: _filter_writer(name)}
        dialect.generator_class = cast(
            "type[generator.Generator]", type(known.__name__, (known,), {"TRANSFORMS": transforms})
        )


def _filter_writer(dialect: str) -> Callable[[generator.Generator, RocketMQFilter], str]:
    def write(self: generator.Generator, node: RocketMQFilter) -> str:
        try:
            text = node.sql("rocketmq")
        except RecursionError:
            raise UnsupportedError("The filter is too deep for sqlglot: compile(text).sql() writes it") from None
        predicate = compile(text, node.args["version"]).predicate
        sql = PredicateWriter(self, dialect, node.args["properties"]).write(predicate)
        return f"({sql})" if isinstance(node.parent, _OPERATORS) else sql

    return write


_OPERATORS = (exp.Binary, exp.Unary, exp.Predicate, exp.Bracket)
_SEARCHES: dict[Search, type[exp.Expr]] = {
    Search.CONTAINS: exp.Contains,
    Search.STARTS_WITH: exp.StartsWith,
    Search.ENDS_WITH: exp.EndsWith,
}
_TOKEN_TYPES = {NAME: TokenType.VAR, NUMBER: TokenType.NUMBER, STRING: TokenType.STRING}
_WORDS = {kind: search.value for search, kind in _SEARCHES.items()}
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
    nodes.Ordering: lambda node, parts: COMPARISONS[node.comparison](this=parts[0], expression=parts[1]),
    nodes.IsNull: lambda node, parts: exp.Is(this=parts[0], expression=exp.Null()),
    nodes.Between: lambda node, parts: exp.Between(this=parts[0], low=parts[1], high=parts[2]),
    nodes.In: lambda node, _: exp.In(this=_column(node.name), expressions=list(map(exp.Literal.string, node.texts))),
    nodes.TextSearch: lambda node, parts: _search(node, parts[0]),
}


def _tree(node: Node) -> Recursion[exp.Expr]:
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


def _version(dialect: Dialect) -> RocketMQVersion:
    """The version in the settings of the dialect. Without the setting, sqlglot's is greater than any."""
    return min(RocketMQVersion(*dialect.version), NEWEST)


def _token(kind: str, text: str, start: int, sql: str) -> Token:
    type_ = _TOKEN_TYPES.get(kind) or tokens.Tokenizer.KEYWORDS.get(kind) or tokens.Tokenizer.SINGLE_TOKENS.get(kind)
    value = string_value(text) if kind == STRING else text
    return Token(type_ or TokenType.VAR, value, *_line_and_column(sql, start), start, start + len(text) - 1)


def _line_and_column(sql: str, position: int) -> tuple[int, int]:
    """The place of a character as sqlglot counts it: from 1."""
    return sql.count("\n", 0, position) + 1, position - sql.rfind("\n", 0, position)


def _parse_error(error: InvalidExpression) -> ParseError:
    """The error as sqlglot has it: one line, and in ``errors`` the place in the text."""
    line, column = _line_and_column(error.expression, error.position)
    return ParseError.new(
        on_one_line(str(error)),
        description=error.problem,
        line=line,
        col=column,
        start_context=error.expression[: error.position],
        highlight=error.expression[error.position : error.position + 1],
        end_context=error.expression[error.position + 1 :],
    )
