"""A compiled SQL92 expression: its predicates, its findings, and its outcome on a single message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from filtering.predicate import Predicate
from filtering.sql92.errors import InvalidExpression
from filtering.sql92.linter import SuspiciousPart, lint
from filtering.sql92.lowering.evaluation_outcome import EvaluationOutcome
from filtering.sql92.lowering.lowering import Lowering
from filtering.sql92.normal_form.form import Form
from filtering.sql92.normal_form.normal_form import NormalForm
from filtering.sql92.reference import evaluate
from filtering.sql92.spark_sql.predicate import spark_sql
from filtering.sql92.syntax.parser import parse
from filtering.type_checks import check_type


class CompiledExpression:
    """An SQL92 expression that the broker accepts.

    ``predicate`` is true exactly if the broker's outcome is TRUE: then the broker delivers the message.
    ``error_predicate`` is true exactly if the broker's evaluation fails; it is not in normal form. Expressions that
    share a ``form`` compile faster.
    """

    def __init__(self, expression: str, form: NormalForm | None = None) -> None:
        self.expression = expression
        self.syntax_tree, self._ignored = parse(expression)
        self._lowering = Lowering(self.syntax_tree, form or NormalForm())

    @cached_property
    def predicate(self) -> Predicate:
        return self._lowering.predicate(EvaluationOutcome.TRUE)

    @cached_property
    def error_predicate(self) -> Predicate:
        return Lowering(self.syntax_tree, Form()).predicate(EvaluationOutcome.ERROR)

    @cached_property
    def findings(self) -> list[SuspiciousPart]:
        """Parts that the broker accepts but that cannot mean what was written, ordered by position."""
        return lint(self.expression, self.syntax_tree, self._ignored, self._lowering.predicate)

    def spark_predicate(self, properties: str | Mapping[str, str] = "properties") -> str:
        """Spark SQL text that is true for messages that the broker delivers, false for all others, never NULL.

        ``properties`` is the SQL text of a ``map<string,string>`` column. Or it maps property names to the SQL
        texts of string columns; properties without a column then count as missing. These texts are inserted
        as they are. Text of the expression is always escaped.
        """
        if isinstance(properties, str):
            return spark_sql(self.predicate, lambda name: f"{properties}['{name}']")
        check_type(properties, Mapping, "properties are the SQL text of a map, or a mapping of names to SQL texts")
        return spark_sql(self.predicate, lambda name: properties.get(name, "CAST(NULL AS STRING)"))

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
        return f"compile({self.expression!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return compile, (self.expression,)


class Expressions:
    """Compiles each distinct text once and returns the same object for the same text."""

    def __init__(self) -> None:
        self._compiled: dict[str, CompiledExpression | InvalidExpression] = {}
        self._form = NormalForm()

    def compile(self, expression: str) -> CompiledExpression | InvalidExpression:
        """The compiled expression, or the error if the broker refuses it."""
        known = self._compiled.get(expression)
        if known is None:
            try:
                known = CompiledExpression(expression, self._form)
            except InvalidExpression as error:
                known = error
            self._compiled[expression] = known
        return known


def compile(expression: str) -> CompiledExpression:
    """Compiles as the broker does for a new subscription (FilterFactory). Raises InvalidExpression if it refuses."""
    check_type(expression, str, "an expression is a text")
    return CompiledExpression(expression)
