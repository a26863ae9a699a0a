"""SQL92 message filters, exactly as a RocketMQ broker evaluates them. The specification is docs/FILTERS.md."""

from filtering.sql92.compiled import CompiledExpression, Expressions, StoredExpression, compile
from filtering.sql92.linter import SuspiciousPart
from filtering.sql92.parser import InvalidExpression, on_one_line
from filtering.sql92.reference import EvaluationError

__all__ = [
    "CompiledExpression",
    "EvaluationError",
    "Expressions",
    "InvalidExpression",
    "StoredExpression",
    "SuspiciousPart",
    "compile",
    "on_one_line",
]
