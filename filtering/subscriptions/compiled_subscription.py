"""What a subscription's text means: its tags, its predicate, or why the broker refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from filtering import sql92
from filtering.subscription_data import build_subscription_data, is_tag_type
from filtering.subscriptions.consumer_filter_data import compile_error


@dataclass(frozen=True, slots=True)
class CompiledSubscription:
    """``tags_set`` and ``code_set``, sorted, of a TAG subscription; ``predicate``, Spark SQL, of an SQL92 one."""

    tags_set: tuple[str, ...] | None = None
    code_set: tuple[int, ...] | None = None
    predicate: str | None = None
    compile_error: str | None = None


@lru_cache(maxsize=65_536)
def compile_subscription(topic: str, expression: str | None, expression_type: str) -> CompiledSubscription:
    """Never raises: what does not compile has its ``compile_error``, and nothing else."""
    if is_tag_type(expression_type):
        if expression and not expression_type:
            # FilterAPI.build reads tags of the type TAG only, and of none given: here they stay without code.
            return CompiledSubscription((), ())
        try:
            tags = build_subscription_data(topic, expression)
        except ValueError as error:
            return CompiledSubscription(compile_error=str(error))
        return CompiledSubscription(tuple(sorted(tags.tags_set)), tuple(sorted(tags.code_set)))
    error_text = compile_error(expression_type, expression)
    if error_text is not None:
        return CompiledSubscription(compile_error=error_text)
    return CompiledSubscription(predicate=sql92.compile(expression or "").spark_predicate())
