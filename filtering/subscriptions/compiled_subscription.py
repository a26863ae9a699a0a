"""A compiled subscription: its tags, its compiled expression, or the reason why the broker refuses it."""

from __future__ import annotations

from dataclasses import dataclass

from filtering.consumer_filter_data import compile_filter
from filtering.sql92 import CompiledExpression, Expressions
from filtering.subscription_data import build_subscription_data, is_tag_type


@dataclass(frozen=True, slots=True)
class CompiledSubscription:
    """A TAG subscription has ``tags_set`` and ``code_set``, both sorted; an SQL92 subscription has ``expression``."""

    tags_set: tuple[str, ...] | None = None
    code_set: tuple[int, ...] | None = None
    expression: CompiledExpression | None = None
    compile_error: str | None = None


def compile_subscription(
    topic: str, expression: str | None, expression_type: str, expressions: Expressions
) -> CompiledSubscription:
    """Compiles a subscription. It never raises: a subscription that does not compile has only a ``compile_error``."""
    if is_tag_type(expression_type):
        if not expression_type:
            # FilterAPI.build parses tags only if the type is TAG or null; an empty type leaves them without codes.
            return CompiledSubscription((), ())
        try:
            tags = build_subscription_data(topic, expression)
        except ValueError as error:
            return CompiledSubscription(compile_error=str(error))
        return CompiledSubscription(tuple(sorted(tags.tags_set)), tuple(sorted(tags.code_set)))
    compiled = compile_filter(expression_type, expression, expressions)
    if isinstance(compiled, str):
        return CompiledSubscription(compile_error=compiled)
    return CompiledSubscription(expression=compiled)
