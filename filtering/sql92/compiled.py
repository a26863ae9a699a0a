"""An SQL92 expression, compiled: what it means, for both executors and for a single message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from filtering.predicate import Predicate
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.linter import Finding, lint
from filtering.sql92.lowering.lowering import Lowering
from filtering.sql92.lowering.outcome import Outcome
from filtering.sql92.reference import evaluate
from filtering.sql92.spark_sql.leaves import Column
from filtering.sql92.spark_sql.predicate import spark_sql
from filtering.sql92.syntax.parser import parse


class CompiledExpression:
    """An expression that the broker accepts.

    ``predicate`` is true exactly where the broker's outcome is TRUE, that is where it delivers;
    ``error_predicate`` exactly where its evaluation fails.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.syntax_tree, self._ignored = parse(expression)
        self._lowering = Lowering(self.syntax_tree)

    @cached_property
    def predicate(self) -> Predicate:
        return self._lowering.predicate(Outcome.TRUE)

    @cached_property
    def error_predicate(self) -> Predicate:
        return self._lowering.predicate(Outcome.ERROR)

    @cached_property
    def findings(self) -> list[Finding]:
        """What the broker accepts here but can't mean what was written, by position."""
        return lint(self.expression, self.syntax_tree, self._ignored, self._lowering.predicate)

    def spark_predicate(self, properties: str | Mapping[str, str] = "properties") -> str:
        """Spark SQL text that is true exactly where the broker delivers, else false, never NULL.

        ``properties`` is the SQL text of a ``map<string,string>`` column, or gives each property that has
        a string column of its own that column's SQL text; other properties are missing everywhere.
        Callers pass their own names here: this text is taken as it is, the expression's never.
        """
        return spark_sql(self.predicate, _in_map(properties) if isinstance(properties, str) else _alone(properties))

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """The broker's outcome on a message's properties: TRUE, FALSE or NULL.

        Raises EvaluationError where the broker's evaluation fails.
        """
        return evaluate(self.syntax_tree, properties)

    def __repr__(self) -> str:
        return f"compile({self.expression!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return compile, (self.expression,)


class Expressions:
    """Compiles each distinct text once, for all that share this object."""

    def __init__(self) -> None:
        self._compiled: dict[str, CompiledExpression | InvalidExpression] = {}

    def compile(self, expression: str) -> CompiledExpression | InvalidExpression:
        """The compiled expression, or, where the broker refuses it, the reason."""
        known = self._compiled.get(expression)
        if known is None:
            try:
                known = compile(expression)
            except InvalidExpression as error:
                known = error
            self._compiled[expression] = known
        return known


def compile(expression: str) -> CompiledExpression:
    """Compile an SQL92 expression as the broker does when it is subscribed (FilterFactory, SqlFilter).

    Raises InvalidExpression where the broker refuses it.
    """
    return CompiledExpression(expression)


def _in_map(properties: str) -> Column:
    return lambda name: f"{properties}['{name}']"


def _alone(columns: Mapping[str, str]) -> Column:
    return lambda name: columns.get(name, "CAST(NULL AS STRING)")
