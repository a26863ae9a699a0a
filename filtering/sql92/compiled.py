"""A compiled SQL92 expression: its predicates, its findings, and its outcome on a single message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from filtering.counted import check_type
from filtering.predicate import Predicate, from_json
from filtering.rocketmq_version import NEWEST, RocketMQVersion, version_of
from filtering.sql92.linter import SuspiciousPart, lint
from filtering.sql92.lowering import EvaluationOutcome, Lowering
from filtering.sql92.nodes import Node
from filtering.sql92.normal_form import NormalFormBuilder, PredicateBuilder
from filtering.sql92.parser import InvalidExpression, SyntaxTree, parse
from filtering.sql92.reference import evaluate
from filtering.sql92.tokens import TEXT_SEARCHES

if TYPE_CHECKING:
    from filtering.sql92.predicate_sql import Properties

_NEW_WORDS = re.compile("|".join(TEXT_SEARCHES), re.IGNORECASE)


class StoredExpression(NamedTuple):
    """What is kept of an expression that was compiled before: it need not be parsed again.

    ``predicates``: ``predicate`` and ``error_predicate`` as JSON (:func:`filtering.predicate.to_json`).
    """

    spark_predicate: str
    findings: Sequence[SuspiciousPart]
    predicates: str


class CompiledExpression:
    """An SQL92 expression that the broker accepts.

    ``predicate`` is true exactly if the broker's outcome is TRUE: then the broker delivers the message.
    ``error_predicate`` is true exactly if the broker's evaluation fails; it is not in normal form. Expressions that
    share a ``builder`` compile faster. ``version``: that of the broker, or of another one to which the text means the
    same. ``stored``: what the same expression compiled to before.
    """

    def __init__(
        self,
        expression: str,
        builder: NormalFormBuilder | None = None,
        version: RocketMQVersion = NEWEST,
        stored: StoredExpression | None = None,
    ) -> None:
        self.expression = expression
        self.version = version
        self._builder = builder or NormalFormBuilder()
        self._stored = stored
        if stored is None:
            self._parsed = parse(expression, version)

    @cached_property
    def _parsed(self) -> SyntaxTree:
        return parse(self.expression, self.version)

    @property
    def syntax_tree(self) -> Node:
        return self._parsed.root

    @cached_property
    def _lowering(self) -> Lowering:
        return Lowering(self.syntax_tree, self._builder)

    @cached_property
    def predicate(self) -> Predicate:
        if self._stored_predicates is not None:
            return self._stored_predicates[0]
        return self._lowering.predicate(EvaluationOutcome.TRUE)

    @cached_property
    def error_predicate(self) -> Predicate:
        if self._stored_predicates is not None:
            return self._stored_predicates[1]
        return Lowering(self.syntax_tree, PredicateBuilder()).predicate(EvaluationOutcome.ERROR)

    @cached_property
    def _stored_predicates(self) -> Sequence[Predicate] | None:
        return None if self._stored is None else from_json(self._stored.predicates)

    @cached_property
    def findings(self) -> Sequence[SuspiciousPart]:
        """Parts that the broker accepts but that cannot mean what was written, ordered by position."""
        if self._stored is not None:
            return self._stored.findings
        return lint(self.expression, *self._parsed, self._lowering.predicate, self.version)

    def spark_predicate(self, properties: Properties = "properties") -> str:
        """Spark SQL text that is true for messages that the broker delivers, false for all others, never NULL.

        :meth:`sql` with Spark as the dialect.
        """
        if self._stored is not None and properties == "properties":
            return self._stored.spark_predicate
        return self.sql("spark", properties)

    def sql(self, dialect: str, properties: Properties = "properties") -> str:
        """The same predicate in a dialect of sqlglot: spark, databricks, duckdb, datafusion, trino or postgres.

        ``properties`` is the SQL text of a ``map<string,string>`` column (PostgreSQL: of a json column). Or it maps
        property names to the SQL texts of string columns; properties without a column then count as missing. Or it
        is a function that returns the SQL text of a property's name. These texts are inserted as they are. Text of
        the expression is always escaped.

        Raises sqlglot's UnsupportedError if the dialect is another one, or cannot say the predicate.
        """
        # Importing sqlglot takes longer than most commands.
        from filtering.sql92.dialect import predicate_sql

        return predicate_sql(self.predicate, dialect, properties)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """The broker's outcome on a message's properties: TRUE, FALSE or NULL (None).

        Raises EvaluationError if the broker's evaluation fails, and TypeError if a property is not a text.
        """
        check_type(properties, Mapping, "properties are a mapping of names to texts")
        for name, text in properties.items():
            if not isinstance(text, str):
                raise TypeError(f"properties are texts: {name} is {text!r} ({type(text).__name__})")
        return evaluate(self.syntax_tree, properties)

    def __repr__(self) -> str:
        return f"compile({', '.join(map(repr, self._arguments))})"

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return compile, self._arguments

    @property
    def _arguments(self) -> tuple[str, ...]:
        return (self.expression,) if self.version == NEWEST else (self.expression, str(self.version))


def is_read_alike(expression: str) -> bool:
    """Whether all versions of the broker read the text alike: those with text searches, and those without them."""
    return not _NEW_WORDS.search(expression)


class Expressions:
    """Compiles each distinct text once and returns the same object for the same text, if the broker reads it alike."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, bool], CompiledExpression | InvalidExpression] = {}
        self._stored: dict[tuple[str, bool], StoredExpression] = {}
        self._builder = NormalFormBuilder()

    def compile(self, expression: str, version: RocketMQVersion = NEWEST) -> CompiledExpression | InvalidExpression:
        """The compiled expression, or the error if a broker of this version refuses it."""
        key = _key(expression, version)
        known = self._compiled.get(key)
        if known is None:
            try:
                known = CompiledExpression(expression, self._builder, version, self._stored.get(key))
            except InvalidExpression as error:
                known = error
            self._compiled[key] = known
        return known

    def keep(self, expression: str, version: RocketMQVersion, stored: StoredExpression) -> None:
        """Gives what a text compiled to for a broker of this version, so that it is not parsed again."""
        self._stored[_key(expression, version)] = stored


def _key(expression: str, version: RocketMQVersion) -> tuple[str, bool]:
    return expression, version.has_text_searches or is_read_alike(expression)


def compile(expression: str, version: RocketMQVersion | str | None = None) -> CompiledExpression:
    """Compiles as the broker does for a new subscription (FilterFactory). Raises InvalidExpression if it refuses.

    ``version``: that of the broker, such as ``4.9.7``; None: the newest. Raises ValueError if it is none.
    """
    check_type(expression, str, "an expression is a text")
    return CompiledExpression(expression, version=version_of(version))
